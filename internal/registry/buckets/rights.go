package buckets

import (
	"errors"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go"
)

// A RightError says that a user of NATS lacks a right, and which.
type RightError struct {
	Subject   string
	Subscribe bool // the right to subscribe, not to publish
}

func (e *RightError) Error() string {
	do := "publish to "
	if e.Subscribe {
		do = "subscribe to "
	}
	return "this user of NATS may not " + do + e.Subject + ": allow it; " +
		"`natsid permissions` prints what each user needs"
}

var violation = regexp.MustCompile(`(?i)permissions violation for (publish|subscription) to "([^"]+)"`)

// MissingRight returns the right of which an error of a NATS connection says that it is missing, nil if it says none.
func MissingRight(err error) *RightError {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	parts := violation.FindStringSubmatch(err.Error())
	if parts == nil {
		return nil
	}
	return &RightError{Subject: parts[2], Subscribe: strings.EqualFold(parts[1], "subscription")}
}
