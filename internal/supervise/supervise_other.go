//go:build !linux

package supervise

import "errors"

// Run fails: other systems do not kill a command with its supervisor, nor give the supervisor its orphans.
func (c *Command) Run() (End, error) { return End{}, errors.New("natsid number needs Linux") }
