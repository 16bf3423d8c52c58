package cli

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"
)

// Builds of releases and of the Dockerfile set these with -ldflags. Where one is empty, Go's build info tells it.
var (
	builtVersion string // with or without the v in front
	builtCommit  string // hash
	builtDate    string // of the commit, RFC 3339
)

// A versionFlag is --version: it prints the version in place of running the command.
type versionFlag bool

// BeforeReset is called by kong if the flag is given, before the command would run.
func (versionFlag) BeforeReset(call *kong.Context, k *kong.Kong, s *session) error {
	s.json = onCommandLine(call, "json")
	v := built()
	err := s.print(v, func(out *sheet) {
		from := "commit unknown"
		if v.Commit != "" {
			from = fmt.Sprintf("commit %.12s of %s", v.Commit, v.Date)
		}
		out.line("natsid %s (%s; %s, nats.go %s, nats-server %s, %s/%s)",
			v.Version, from, v.Go, v.NATSGo, v.NATSServer, v.OS, v.Arch)
	})
	if err == nil {
		k.Exit(0)
	}
	return err
}

type versionJSON struct {
	Version    string `json:"version"`
	Commit     string `json:"commit"` // "" if the build does not record it
	Date       string `json:"date"`   // of the commit
	Go         string `json:"go"`
	NATSGo     string `json:"nats_go"`
	NATSServer string `json:"nats_server"`
	OS         string `json:"os"`
	Arch       string `json:"arch"`
}

// version returns the version of this binary, without a v in front.
func version() string { return built().Version }

// built returns what is known about how this binary was built.
func built() versionJSON {
	v := versionJSON{Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	for _, m := range info.Deps {
		switch m.Path {
		case "github.com/nats-io/nats.go":
			v.NATSGo = m.Version
		case "github.com/nats-io/nats-server/v2":
			v.NATSServer = m.Version
		}
	}
	recorded := map[string]string{}
	for _, s := range info.Settings {
		recorded[s.Key] = s.Value
	}
	v.Commit, v.Date = cmp.Or(builtCommit, recorded["vcs.revision"]), cmp.Or(builtDate, recorded["vcs.time"])
	v.Version = cmp.Or(builtVersion, strings.TrimSuffix(info.Main.Version, "(devel)"), "0.1.0-dev")
	v.Version = strings.TrimPrefix(v.Version, "v")
	return v
}
