package cli

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/alecthomas/kong"
)

type versionCmd struct{}

func (*versionCmd) help() help {
	return help{
		summary: "Print the version.",
		detail: `Example:
  natsid version`,
	}
}

// Run implements the command.
func (*versionCmd) Run(s *session) error {
	v := versionJSON{version(), runtime.Version(), runtime.GOOS, runtime.GOARCH}
	return s.print(v, func(out io.Writer) {
		fmt.Fprintf(out, "natsid %s (%s, %s/%s)\n", v.Version, v.Go, v.OS, v.Arch)
	})
}

// A versionFlag prints the version, as the command does, in place of whatever else the command line says.
type versionFlag bool

// BeforeReset is called by kong where the flag is given.
func (versionFlag) BeforeReset(k *kong.Kong, s *session) error {
	if err := new(versionCmd).Run(s); err != nil {
		return err
	}
	k.Exit(0)
	return nil
}

type versionJSON struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// version returns the version of the module if the build recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if ok && len(info.Main.Version) > 1 && info.Main.Version[0] == 'v' {
		return info.Main.Version[1:]
	}
	return "0.1.0-dev"
}
