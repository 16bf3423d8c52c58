package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
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
	_, err := fmt.Fprintf(s.stdout, "natsid %s (%s, %s/%s)\n",
		version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// version returns the version of the module if the build recorded it.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if ok && len(info.Main.Version) > 1 && info.Main.Version[0] == 'v' {
		return info.Main.Version[1:]
	}
	return "0.1.0-dev"
}
