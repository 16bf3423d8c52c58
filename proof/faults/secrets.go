//go:build linux

package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"os"
	"slices"
	"strings"
)

// secrets are the credentials of a trial's workers and operators. NATS does not check them here.
type secrets struct {
	password, token string // of NATS
	mysql           string // the password, "" without MySQL
}

func newSecrets() secrets {
	return secrets{password: "password-" + rand.Text(), token: "token-" + rand.Text()}
}

// keepMySQL records the password in a DSN.
func (s *secrets) keepMySQL(dsn string) {
	_, rest, _ := strings.Cut(dsn, ":")
	if end := strings.LastIndexByte(rest, '@'); end >= 0 {
		s.mysql = rest[:end]
	}
}

// in returns URLs that contain secrets, in both forms.
func (s *secrets) in(urls []string) string {
	users := []string{"natsid:" + s.password + "@", s.token + "@"}
	urls = slices.Clone(urls)
	for i, u := range urls {
		urls[i] = strings.Replace(u, "://", "://"+users[i%len(users)], 1)
	}
	return strings.Join(urls, ",")
}

// shown returns the kind of secret that a text contains, "" if none.
func (s *secrets) shown(text []byte) string {
	for kind, secret := range map[string]string{
		"the password of NATS": s.password, "the token of NATS": s.token, "the password of MySQL": s.mysql,
	} {
		if secret != "" && bytes.Contains(text, []byte(secret)) {
			return kind
		}
	}
	return ""
}

// judgeSecrets searches all output of workers, which log at level debug, and of operators' commands for secrets.
func (t *trial) judgeSecrets() {
	for _, w := range t.workers {
		name := w.name + ".log"
		text, err := os.ReadFile(t.path(name))
		if err != nil && !errors.Is(err, os.ErrNotExist) { // the worker was never started
			t.violation("%v", err)
		}
		if w.Process != nil {
			text = append(text, w.FirstLine()...)
		}
		if kind := t.secrets.shown(text); kind != "" {
			t.wrong("%s shows %s", name, kind)
		}
	}
	if kind := t.secrets.shown([]byte(strings.Join(t.events, "\n"))); kind != "" {
		t.wrong("a command, or /readyz, shows %s", kind)
	}
}
