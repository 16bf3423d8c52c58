package natscontext

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzDecode guards the secrets in a context: what is wrong with it is said without them.
func FuzzDecode(f *testing.F) {
	const secret = "s3cr3tPassw0rd"
	for _, parts := range [][2]string{
		{`{"password":"`, `"}`}, {`{"password":"`, ``}, {`{"url":"nats://u:`, `@h"}`}, {`{"token":`, `}`},
		{`{"user_seed":["`, `"]}`}, {`{"creds":"op://`, `"}`}, {`{"tls_first":"`, `"}`}, {"", ""},
		{`{"nkey":"~`, `$HOME"}`}, {`{"socks_proxy":"u:`, `@h"}`}, {`{"`, `":1}`},
	} {
		f.Add(parts[0], parts[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		text := []byte(before + secret + after)
		var c Context
		err := json.Unmarshal(text, &c)
		if err != nil {
			err = describe(err, text)
		} else {
			err = c.complete()
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
