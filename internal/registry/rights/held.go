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

// UserInfo is the subject on which nats-server, from 2.10 on, tells a user its own permissions.
const UserInfo = "$SYS.REQ.USER.INFO"

// Held are the permissions that a user has, as nats-server describes them. The zero value restricts nothing: the user
// may do everything.
type Held struct {
	Publish   Permission `json:"publish"`
	Subscribe Permission `json:"subscribe"`
	Responses *struct{}  `json:"responses"` // set if the user has `allow_responses`; else nil
}

// A Permission lists the subjects that nats-server allows and denies. An empty Allow allows all subjects that Deny
// does not name. An entry about subscriptions may name a queue group after a space.
type Permission struct{ Allow, Deny []string }

// Ask asks the server of a connection what its user may do. It fails if the server does not answer: it is older than
// 2.10, or the user may not ask. The answer does not show what a leaf node on the way forbids.
func Ask(ctx context.Context, nc *nats.Conn) (Held, error) {
	m, err := nc.RequestWithContext(ctx, UserInfo, nil)
	if err != nil {
		prefix := cmp.Or(nc.Opts.InboxPrefix, defaultInbox)
		if lack := buckets.MissingRight(nc.LastError()); lack != nil && lack.Subscribe &&
			strings.HasPrefix(lack.Subject, prefix) {
			return Held{Subscribe: Permission{Deny: []string{inbox(prefix)}}}, nil // the user hears no answers at all
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

// Missing returns the rights of r that h does not include. `allow_responses` counts as each right to answer requests.
// A right of which only some subjects are denied counts as held, since an operator may intend that.
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

// covers reports whether one of the patterns, as nats-server has them, matches all subjects of a right. A pattern
// with a queue group covers only subscriptions in that group.
func covers(patterns []string, r Right) bool {
	return slices.ContainsFunc(patterns, func(text string) bool {
		pattern, queue, isQueued := strings.Cut(text, " ")
		return jwt.Subject(r.Subject).IsContainedIn(jwt.Subject(pattern)) &&
			(!isQueued || r.Queue != "" && jwt.Subject(r.Queue).IsContainedIn(jwt.Subject(queue)))
	})
}

// For returns those of the rights that a worker needs to serve requests of a mode.
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
