package cli

import (
	"cmp"
	"fmt"
	"io"
	"strconv"

	"github.com/natsid/natsid/internal/app"
)

// configCmd has the flags of serve.
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

// Run implements the command.
func (*configCmd) Run(s *session) error {
	cfg, err := s.validConfig()
	if err != nil {
		return err
	}
	for _, sentence := range s.said {
		fmt.Fprintln(s.stderr, sentence)
	}
	values := cfg.Values()
	return s.print(values, func(out io.Writer) { printValues(out, values) })
}

func printValues(table io.Writer, values []app.Value) {
	fmt.Fprintln(table, "SETTING\tVALUE\tFROM")
	for _, v := range values {
		value := v.Text
		if value == "" {
			value = "-"
			if v.From != app.FromDefault {
				value = strconv.Quote("")
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", v.Flag, value, cmp.Or(v.Place, v.From.String()))
	}
}
