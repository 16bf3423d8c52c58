package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/stores/mysqlstore"
)

func showMySQL(c *Config) string {
	if c.MySQL == "" {
		return ""
	}
	return mysqlstore.Redact(c.MySQL)
}

func checkDSN(c *Config) error {
	if c.MySQL == "" || mysqlstore.Check(c.MySQL) == nil {
		return nil
	}
	return errors.New("is malformed: want user:password@tcp(host:port)/database")
}

// Database returns the login of MySQL. Its DSN is the text of --mysql, or the content of --mysql-file.
func (c *Config) Database() (mysqlstore.Login, error) {
	dsn, err := secret{c.MySQL, c.MySQLFile}.read()
	if err != nil {
		return mysqlstore.Login{}, fmt.Errorf("%s cannot be used: %w; write the DSN there",
			place("mysql-file", c.given), err)
	}
	return mysqlstore.Login{
		DSN: strings.TrimSpace(dsn), File: c.MySQLFile, CA: c.MySQLCA, Cert: c.MySQLCert, Key: c.MySQLKey,
	}, nil
}

// OnMySQL reports whether the tags are in a table of MySQL: --mysql or --mysql-file is given.
func (c *Config) OnMySQL() bool { return c.MySQL != "" || c.MySQLFile != "" }

// OpenTable connects to MySQL once, within 10 s.
func OpenTable(ctx context.Context, login mysqlstore.Login) (*mysqlstore.Table, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	t, err := login.Open(ctx)
	if err == nil {
		return t, nil
	}
	remedy := ""
	if isA[*tls.CertificateVerificationError](err) {
		remedy = "; give the certificate of its authority with --mysql-ca, and its host as the certificate names it"
	}
	return nil, fmt.Errorf("cannot use MySQL at %s: %w%s", mysqlstore.Redact(login.DSN), err, remedy)
}
