package monitor

import (
	"net/http"
	"net/http/pprof"
)

// ProfilesPath is the path below which [Profiles] serves.
const ProfilesPath = "/debug/pprof/"

// Profiles serves the profiles of this process for `go tool pprof`. It does not serve the command line, which may hold
// passwords.
func Profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(ProfilesPath, pprof.Index)
	mux.HandleFunc(ProfilesPath+"profile", pprof.Profile)
	mux.HandleFunc(ProfilesPath+"symbol", pprof.Symbol)
	mux.HandleFunc(ProfilesPath+"trace", pprof.Trace)
	return mux
}
