package rights

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/registry/buckets"
)

// UserInfo is where a server of NATS, from 2.10 on, says what the user who asks may do.
const UserInfo = "$SYS.REQ.USER.INFO"

// Held are the permissions of a user, as nats-server tells them. Those of a user without any are the zero value: it may
// do everything.
type Held struct {
	Publish   Permission `json:"publish"`
	Subscribe Permission `json:"subscribe"`
	Responses *struct{}  `json:"responses"` // of `allow_responses`; nil without
}

// A Permission is what nats-server allows and denies: all but the denied, if nothing is allowed. One to subscribe may
// name a queue group behind a space.
type Permission struct{ Allow, Deny []string }

// Ask asks the server of a connection what its user may do. It is an error where the server does not say: it is older,
// or the user may not ask. The rights of a leaf node between are not in the answer.
func Ask(ctx context.Context, nc *nats.Conn) (Held, error) {
	m, err := nc.RequestWithContext(ctx, UserInfo, nil)
	if err != nil {
		prefix := cmp.Or(nc.Opts.InboxPrefix, defaultInbox)
		if lack := buckets.MissingRight(nc.LastError()); lack != nil && lack.Subscribe &&
			strings.HasPrefix(lack.Subject, prefix) {
			return Held{Subscribe: Permission{Deny: []string{inbox(prefix)}}}, nil // it hears no answer, nor any other
		}
		return Held{}, fmt.Errorf("rights: %s: %w", UserInfo, err)
	}
	var answer struct {
		Data struct {
			Account     string `json:"account"`
			Permissions Held   `json:"permissions"`
		} `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil || answer.Data.Account == "" {
		return Held{}, errors.Join(fmt.Errorf("rights: the answer on %s is %.80q", UserInfo, m.Data), err)
	}
	return answer.Data.Permissions, nil
}

// Missing returns those of the rights that a user does not hold. A right to answer is also held through
// `allow_responses`. What is denied in part counts as held: it may be meant so.
func (r Rights) Missing(h Held) Rights {
	publishes := func(r Right) bool { return r.isAnswer() && h.Responses != nil || h.Publish.holds(r) }
	return Rights{
		Publish:   slices.DeleteFunc(slices.Clone(r.Publish), publishes),
		Subscribe: slices.DeleteFunc(slices.Clone(r.Subscribe), h.Subscribe.holds),
	}
}

// holds reports whether a right is allowed and not denied.
func (p Permission) holds(r Right) bool {
	return (len(p.Allow) == 0 || covers(p.Allow, r)) && !covers(p.Deny, r)
}

// covers reports whether one of the patterns of nats-server matches all that a right is about. One with a queue group
// is about subscriptions in that group alone.
func covers(patterns []string, r Right) bool {
	return slices.ContainsFunc(patterns, func(text string) bool {
		pattern, queue, isQueued := strings.Cut(text, " ")
		return jwt.Subject(r.Subject).IsContainedIn(jwt.Subject(pattern)) &&
			(!isQueued || r.Queue != "" && jwt.Subject(r.Queue).IsContainedIn(jwt.Subject(queue)))
	})
}

// For returns the rights without which a worker serves nothing of a mode.
func (r Rights) For(mode string) Rights {
	others := func(r Right) bool { return !slices.Contains(strings.Fields(r.modes), mode) }
	return Rights{
		Publish:   slices.DeleteFunc(slices.Clone(r.Publish), others),
		Subscribe: slices.DeleteFunc(slices.Clone(r.Subscribe), others),
	}
}

// String lists the rights in words, "" if there are none.
func (r Rights) String() string {
	var words []string
	for _, part := range []struct {
		verb   string
		rights []Right
	}{{"publish to ", r.Publish}, {"subscribe to ", r.Subscribe}} {
		if len(part.rights) > 0 {
			words = append(words, part.verb+strings.Join(Texts(part.rights), ", "))
		}
	}
	return strings.Join(words, "; ")
}
