package app

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/configfile"
)

// credentials has the options of a connection with this program's credentials. Files are read again for each
// connection, so a renewed file takes effect at the next reconnect.
type credentials struct {
	options []nats.Option
	conn    atomic.Pointer[nats.Conn] // set once the connection exists
}

// try reads the files of an option as a connection would, and returns an error if the files cannot be used.
func try(option nats.Option) error {
	o := nats.GetDefaultOptions()
	if err := option(&o); err != nil || o.SignatureCB == nil {
		return err
	}
	if o.UserJWT != nil {
		if _, err := o.UserJWT(); err != nil {
			return err
		}
	}
	_, err := o.SignatureCB([]byte("nonce"))
	return err
}

// credentialsOf returns the credentials of the settings. The error names each setting that cannot be used.
func credentialsOf(cfg Config) (*credentials, error) {
	c := new(credentials)
	user, password := cfg.NATSUser, secret{cfg.NATSPassword, cfg.NATSPasswordFile}
	token := secret{cfg.NATSToken, cfg.NATSTokenFile}
	if user != "" && !password.given() { // as the nats command does
		user, token = "", secret{text: user}
	}
	var faults []error
	for _, o := range []struct {
		given  bool
		option nats.Option
		flag   string
		remedy string
	}{
		{user != "", password.option(func(latest func() string) nats.Option {
			return nats.UserInfoHandler(func() (string, string) { return user, latest() })
		}), "password-file", "write the password there"},
		{token.given(), token.option(func(latest func() string) nats.Option { return nats.TokenHandler(latest) }),
			"token-file", "write the token there"},
		{cfg.NATSCreds != "", nats.UserCredentials(cfg.NATSCreds), "creds",
			"write the file again, as with `nsc generate creds`"},
		{cfg.NATSNKey != "", c.withNKey(cfg.NATSNKey), "nkey",
			"name a file with the seed of a user, which begins with SU"},
		{cfg.NATSCA != "", nats.RootCAs(cfg.NATSCA), "tlsca", "name a file of certificates in PEM"},
		{cfg.NATSCert != "", nats.ClientCert(cfg.NATSCert, cfg.NATSKey), "tlscert",
			"give --tlscert and --tlskey files in PEM that belong together"},
		{cfg.InboxPrefix != "", nats.CustomInboxPrefix(cfg.InboxPrefix), "inbox-prefix", ""},
	} {
		if !o.given {
			continue
		}
		if err := try(o.option); err != nil {
			faults = append(faults, fmt.Errorf("%s cannot be used: %w; %s", place(o.flag, cfg.given), err, o.remedy))
		}
		c.options = append(c.options, o.option)
	}
	return c, errors.Join(faults...)
}

// withNKey returns the option that signs with the seed in a file. The client sends the public key in the connection's
// options before it signs. If the file has a new seed by then, this attempt is refused. But the signing function, which
// runs with the connection locked, sets the new key there, so the next attempt succeeds.
func (c *credentials) withNKey(file string) nats.Option {
	read := func() (o nats.Options, err error) {
		option, err := nats.NkeyOptionFromSeed(file)
		if err == nil {
			err = option(&o)
		}
		return o, err
	}
	return func(o *nats.Options) error {
		now, err := read()
		o.Nkey, o.SignatureCB = now.Nkey, func(nonce []byte) ([]byte, error) {
			now, err := read()
			if err != nil {
				return nil, err
			}
			if nc := c.conn.Load(); nc != nil {
				nc.Opts.Nkey = now.Nkey
			}
			return now.SignatureCB(nonce)
		}
		return err
	}
}

// A secret is a text that must not be shown: text itself, or the content of file. Errors name the file, never the text.
type secret struct{ text, file string }

func (s secret) given() bool { return s.text != "" || s.file != "" }

func (s secret) read() (string, error) {
	if s.file == "" {
		return s.text, nil
	}
	return configfile.Secret(s.file)
}

// option returns the connection option that the parameter with makes of a function. That function reads the text again
// for each connection. If the file cannot be read, it returns the text that it read last.
func (s secret) option(with func(latest func() string) nats.Option) nats.Option {
	return func(o *nats.Options) error {
		text, err := s.read()
		if err != nil {
			return err
		}
		return with(func() string {
			if now, err := s.read(); err == nil {
				text = now
			}
			return text
		})(o)
	}
}
