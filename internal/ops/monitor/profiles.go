package monitor

import (
	"net/http"
	"net/http/pprof"
)

// ProfilesPath is below which [Profiles] serves.
const ProfilesPath = "/debug/pprof/"

// Profiles serves the profiles of this process, as `go tool pprof` reads them. The command line is not among them: it
// may hold passwords.
func Profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(ProfilesPath, pprof.Index)
	mux.HandleFunc(ProfilesPath+"profile", pprof.Profile)
	mux.HandleFunc(ProfilesPath+"symbol", pprof.Symbol)
	mux.HandleFunc(ProfilesPath+"trace", pprof.Trace)
	return mux
}
