package cli

import (
	"cmp"
	"fmt"

	"github.com/natsid/natsid/internal/app"
)

// configCmd has the flags of serve, which addSettings adds.
type configCmd struct{}

func (*configCmd) help() help {
	return help{
		summary: "Show the settings in force, and where each comes from.",
		detail: `It takes the flags of "natsid serve", and says what a worker with the same flags,
environment and configuration file would take: a flag before the environment, that
before the file, that before the context of the nats command, and that before the
default. Secrets are shown as xxxxx. If anything is wrong it names all of it, and
the exit code is 2: use it to check a file. It connects to nothing.

Examples:
  natsid config
  natsid config --config natsid.yaml --deadline 2s
  natsid config --config natsid.yaml --json`,
	}
}

func (*configCmd) Run(s *session) error {
	cfg, err := s.validConfig()
	if err != nil {
		return err
	}
	for _, sentence := range s.said {
		fmt.Fprintln(s.stderr, sentence)
	}
	values := cfg.Values()
	return s.print(values, func(out *sheet) {
		out.head("SETTING\tVALUE\tFROM")
		for _, v := range values {
			if v.Value == "" && v.From != app.FromDefault.String() {
				v.Value = `""`
			}
			out.row(v.Setting, v.Value, cmp.Or(v.Place, v.From))
		}
	})
}
