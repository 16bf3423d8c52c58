package app

import (
	"net/url"
	"strings"
	"testing"
)

// FuzzSettings guards that no text of a setting breaks the start: each is taken, or refused with an error on one line.
func FuzzSettings(f *testing.F) {
	for _, text := range []string{
		"", "0", "-1", "1e9", "9223372036854775808", "5m", "-5m", "on", "off", "true", "2018-09-22", "41/10/12", "[",
		"nats://a:b@h:4222,ws://h", "127.0.0.1:4222", ":0", "a\nb", "a.>", "*", "../../etc/passwd", "\x00", "é",
		"user:pw@tcp(h)/d", "0x10", "1_000", "NaN",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range settings {
			cfg := Default()
			if err := s.put(&cfg, text); err != nil {
				if strings.ContainsAny(err.Error(), "\r\n") {
					t.Fatalf("--%s %q: the error has several lines: %v", s.Flag, text, err)
				}
				continue
			}
			_ = cfg.Validate() // must not panic
		}
	})
}

// FuzzRedact guards the passwords and tokens in a list of URLs: whatever else is in it, they are not shown.
func FuzzRedact(f *testing.F) {
	for _, parts := range [][2]string{
		{"nats://me:", "@n1:4222"}, {"tls://", "@n1"}, {"me:", "@n1,n2"}, {"nats://a:b,", "@h"},
		{"n2,nats://me:", "@n1"},
		{"nats://me:x/", "@n1/path"}, {"nats://me:%zz", "@n1"}, {"ws://me:", "@[::1]:80"}, {"", "@"}, {"://", "@h"},
		{"nats://me:x,y,", ",z@h"}, {"nats://me:", ",x@h"},
	} {
		f.Add(parts[0], parts[1])
	}
	const secret = "s3cr3tPassw0rd"
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Contains(before, ",") && !strings.Contains(before, "@") || !strings.Contains(after, "@") ||
			strings.Contains(after[:strings.IndexByte(after, '@')], ",") {
			return // a comma separates URLs: which of them the password is of cannot be known
		}
		urls := before + secret + after
		if shown := Redact(urls); strings.Contains(shown, secret) {
			t.Fatalf("%q is shown as %q", urls, shown)
		}
		if _, err := url.Parse(urls); err != nil && strings.Contains(WithoutURL(err).Error(), secret) {
			t.Fatalf("%q: %v", urls, WithoutURL(err))
		}
	})
}
