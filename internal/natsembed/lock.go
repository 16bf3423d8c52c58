package natsembed

import (
	"crypto/tls"

	"github.com/nats-io/nats-server/v2/server"
)

// A Lock keeps everybody out of a server but its users, who connect over TLS.
//
// Law: its users are in the account that everybody is in without a lock. That account has the streams, so a lock that
// is put on a server, or taken off, changes no mark and no record.
type Lock struct {
	Certificate *Certificate
	Users       []User
	// Self is the key of the user as whom this program connects to its own server.
	Self *Key
}

// A User may publish and subscribe to nothing else.
type User struct {
	Key                *Key
	Publish, Subscribe []string // as permissions of nats-server have them
}

// apply puts the lock on a server that does not run yet.
func (l *Lock) apply(o *server.Options) {
	o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: l.Certificate.get}
	for _, u := range l.Users {
		o.Nkeys = append(o.Nkeys, &server.NkeyUser{Nkey: u.Key.Public, Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: u.Publish},
			Subscribe: &server.SubjectPermission{Allow: u.Subscribe},
		}})
	}
}
