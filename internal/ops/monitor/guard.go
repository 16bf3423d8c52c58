package monitor

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/natsid/natsid/internal/configfile"
)

// ReadToken returns the token in a file; its error names the file.
func ReadToken(file string) (string, error) {
	text, err := configfile.Secret(file)
	if err != nil {
		return "", fmt.Errorf("%w: write a token there, such as `openssl rand -hex 32` prints", err)
	}
	return strings.TrimSpace(text), nil
}

// Guard serves next to callers that show the token in a file: as a bearer token, or as the password of any user, which
// browsers ask for. The file is read for each request, so a replaced token counts at once.
func Guard(file string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := ReadToken(file)
		if err != nil {
			http.Error(w, "the file of --http-token-file cannot be read: correct it", http.StatusServiceUnavailable)
			return
		}
		if !shows(r, token) {
			w.Header().Set("WWW-Authenticate", `Basic realm="natsid", charset="UTF-8"`)
			http.Error(w, "show the token of --http-token-file: as a bearer token, or as the password of any user",
				http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// shows reports whether a request shows the token. Its duration does not depend on how much of a wrong token is right.
func shows(r *http.Request, token string) bool {
	_, shown, _ := r.BasicAuth()
	if scheme, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "bearer") {
		shown = strings.TrimSpace(bearer)
	}
	got, want := sha256.Sum256([]byte(shown)), sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// Local serves next only to requests whose host is localhost or an IP address. Otherwise a web page whose host name was
// made to resolve to this machine could read next.
func Local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = strings.Trim(r.Host, "[]") // the host has no port
		}
		if host != "localhost" && !strings.HasSuffix(host, ".localhost") && net.ParseIP(host) == nil {
			http.Error(w, fmt.Sprintf("%q is not a name of this machine alone: "+
				"open the page by its IP or as localhost, or set --http-token-file", host), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
