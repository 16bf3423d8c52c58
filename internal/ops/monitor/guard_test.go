package monitor

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

var page = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })

func code(h http.Handler, change func(*http.Request)) int {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8080/", nil)
	change(r)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

func TestWhatIsGuardedWantsTheToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("secret\n")
	h := Guard(file, page)
	for name, tc := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"nothing":            {func(*http.Request) {}, 401},
		"bearer":             {func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret") }, 200},
		"a scheme's case":    {func(r *http.Request) { r.Header.Set("Authorization", "bearer secret") }, 200},
		"another token":      {func(r *http.Request) { r.Header.Set("Authorization", "Bearer secrets") }, 401},
		"no scheme":          {func(r *http.Request) { r.Header.Set("Authorization", "secret") }, 401},
		"no token":           {func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }, 401},
		"password":           {func(r *http.Request) { r.SetBasicAuth("anyone", "secret") }, 200},
		"password, no user":  {func(r *http.Request) { r.SetBasicAuth("", "secret") }, 200},
		"wrong password":     {func(r *http.Request) { r.SetBasicAuth("secret", "") }, 401},
		"token in the query": {func(r *http.Request) { r.URL.RawQuery = "token=secret" }, 401},
	} {
		if got := code(h, tc.change); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
	old := func(r *http.Request) { r.SetBasicAuth("x", "secret") }
	write("renewed")
	if got := code(h, old); got != 401 {
		t.Errorf("a token that was replaced: %d", got)
	}
	for _, empty := range []string{"", "\n"} {
		write(empty)
		if got := code(h, func(r *http.Request) { r.SetBasicAuth("x", "") }); got != 503 {
			t.Errorf("with an empty file: %d", got)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := code(h, old); got != 503 {
		t.Errorf("without the file: %d", got)
	}
}

func TestAStrangersNameForThisMachineIsRefused(t *testing.T) {
	for host, want := range map[string]int{
		"localhost:8080": 200, "127.0.0.1:8080": 200, "[::1]:8080": 200, "[::1]": 200, "127.0.0.1": 200,
		"localhost":        200,
		"a.localhost:8080": 200, "evil.example:8080": 403, "evil.example": 403, "localhost.evil.example": 403, "": 403,
	} {
		if got := code(Local(page), func(r *http.Request) { r.Host = host }); got != want {
			t.Errorf("%q: %d, want %d", host, got, want)
		}
	}
}
