package natsembed

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
)

// Permissions are what a configuration of nats-server permits a user. The zero value permits all.
type Permissions struct{ given *server.Permissions }

// ReadPermissions returns the permissions of the users in a configuration of nats-server, by their names or public
// nkeys. The file may also have the permissions of one user alone, as `natsid permissions` prints them: its name is "".
func ReadPermissions(path string) (map[string]Permissions, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	all := make(map[string]Permissions)
	printed := new(server.Options)
	if printed.ProcessConfigString("authorization { users: [ { user: a, password: b\n"+string(text)+"\n} ] }") == nil {
		all[""] = Permissions{printed.Users[0].Permissions}
		return all, nil
	}
	opts := new(server.Options)
	if err := opts.ProcessConfigString(string(text)); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for _, u := range opts.Users {
		all[u.Username] = Permissions{u.Permissions}
	}
	for _, u := range opts.Nkeys {
		all[u.Nkey] = Permissions{u.Permissions}
	}
	return all, nil
}

// MayAnswer reports whether the user may answer each request that it gets, wherever the answer goes.
func (p Permissions) MayAnswer() bool { return p.given == nil || p.given.Response != nil }

// MayPublish reports whether the user may publish on all subjects that match a pattern.
func (p Permissions) MayPublish(pattern string) bool {
	if p.given == nil || p.given.Publish == nil {
		return true
	}
	all := p.given.Publish.Allow == nil // an empty list allows nothing
	return covers(all, p.given.Publish, pattern, "")
}

// MaySubscribe reports whether the user may subscribe to all subjects that match a pattern, in a queue group unless
// that is "".
func (p Permissions) MaySubscribe(pattern, queue string) bool {
	if p.given == nil || p.given.Subscribe == nil {
		return true
	}
	all := len(p.given.Subscribe.Allow) == 0 // an empty list allows all
	return covers(all, p.given.Subscribe, pattern, queue)
}

// covers reports whether permissions allow a pattern, if they do not allow all, and deny no part of it.
func covers(all bool, given *server.SubjectPermission, pattern, queue string) bool {
	isAbout := func(match func(pattern, rule string) bool) func(rule string) bool {
		return func(rule string) bool {
			subject, of, _ := strings.Cut(rule, " ")
			return match(pattern, subject) && (of == "" || of == queue)
		}
	}
	return !slices.ContainsFunc(given.Deny, isAbout(server.SubjectsCollide)) &&
		(all || slices.ContainsFunc(given.Allow, isAbout(server.SubjectMatchesFilter)))
}
