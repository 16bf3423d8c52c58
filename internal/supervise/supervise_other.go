//go:build !linux

package supervise

import "errors"

// Run fails: other systems do not end a command whose supervisor is killed, nor make its orphans the supervisor's.
func (c *Command) Run() (End, error) { return End{}, errors.New("natsid number needs Linux") }
