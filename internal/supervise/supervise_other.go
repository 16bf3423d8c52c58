//go:build !linux

package supervise

import "errors"

// Run fails: only on Linux does a command end when its supervisor is killed, and do its orphans become children.
func (c *Command) Run() (End, error) { return End{}, errors.New("natsid number needs Linux") }
