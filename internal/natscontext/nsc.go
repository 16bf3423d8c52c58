package natscontext

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// askNSC asks the nsc command for the credentials and the servers of a user, as the nats command does. What the
// context itself says takes precedence.
func (c *Context) askNSC() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	remedy := fmt.Sprintf("run `nsc generate profile %s` to see why, or give the user's file with --creds", c.NSC)
	out, err := exec.CommandContext(ctx, "nsc", "generate", "profile", c.NSC).Output()
	if err != nil {
		return fmt.Errorf("nsc does not know the user: %w; %s", err, remedy)
	}
	var profile struct {
		Creds    string `json:"user_creds"`
		Operator struct {
			Service []string `json:"service"`
		} `json:"operator"`
	}
	if json.Unmarshal(out, &profile) != nil {
		return fmt.Errorf("what nsc answers is not a profile; %s", remedy)
	}
	c.Creds = cmp.Or(c.Creds, profile.Creds)
	c.URL = cmp.Or(c.URL, strings.Join(profile.Operator.Service, ","))
	return nil
}
