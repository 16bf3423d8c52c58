package buckets

import (
	"errors"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go"
)

// A RightError says which right a user of NATS lacks.
type RightError struct {
	Subject   string
	Subscribe bool // the right to subscribe is missing, not that to publish
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

// MissingRight returns the missing right that an error of a NATS connection names, nil if it names none.
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
