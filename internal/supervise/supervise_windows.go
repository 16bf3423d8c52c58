package supervise

import "errors"

// Run fails: Windows has no signals to pass on.
func (c *Command) Run() (End, error) { return End{}, errors.New("Windows is not supported") }
