package natsembed

import (
	"crypto/tls"

	"github.com/nats-io/nats-server/v2/server"
)

// A Lock admits only its users to a server, who connect over TLS.
//
// Law: its users are in the account that all clients are in without a lock. That account has the streams, so putting
// a lock on a server, or removing it, changes no mark and no record.
type Lock struct {
	Certificate *Certificate
	Users       []User
	// Self is the key of the user that this program uses on its own server.
	Self *Key
}

// A User may publish and subscribe to these subjects only.
type User struct {
	Key                *Key
	Publish, Subscribe []string // in the form of nats-server's permissions
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
