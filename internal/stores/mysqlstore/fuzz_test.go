package mysqlstore

import (
	"context"
	"strings"
	"testing"
)

// secret stands in DSNs where a password may: none that is refused, and none that is shown, says it.
const secret = "s3cr3tPassw0rd"

// FuzzDSN guards the password of a DSN, whatever is wrong with the rest. A DSN is cut in two, and the password put in
// between, as it stands and as a part of a pair.
func FuzzDSN(f *testing.F) {
	for _, parts := range [][2]string{
		{"natsid:", "@tcp(db:3306)/ids"}, {"natsid:", "@unix(/run/mysqld.sock)/ids"}, {"natsid:", "@tcp(db:3306/ids"},
		{"natsid:", "tcp(db:3306)/ids"}, {"a:", "@b@tcp(h)/d?tls=x"}, {"a:x/", "@tcp(h)/d"}, {"a:", "/d"},
		{"a:b(", ")@tcp(h)/d"}, {"a:", "@/d?timeout=x"}, {"mysql://a:", "@h:3306/d"}, {"", ""}, {"a:", "@tcp(h)/"},
		{"natsid:half/", "@tcp(db:3306)"}, {"/:", "@0"},
	} {
		f.Add(parts[0], parts[1])
	}
	ctx, cancel := context.WithCancel(f.Context())
	cancel() // what is well-formed is not dialled
	f.Fuzz(func(t *testing.T, before, after string) {
		dsn := before + ":" + secret + "@" + after
		for _, dsn := range []string{before + secret + after, dsn} {
			user, rest, isPair := strings.Cut(dsn, ":")
			password, _, ends := cutLast(rest, "@")
			if !isPair || !ends || !strings.Contains(password, secret) || strings.Contains(user, secret) {
				continue // it stands where no password is
			}
			if shown := Redact(dsn); strings.Contains(shown, secret) {
				t.Fatalf("%q is shown as %q", dsn, shown)
			}
			if table, err := (Login{DSN: dsn}).Open(ctx); err == nil {
				table.Close()
			} else if strings.Contains(err.Error(), secret) {
				t.Fatalf("%q: %v", dsn, err)
			}
		}
	})
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
