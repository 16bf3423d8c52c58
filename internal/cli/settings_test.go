package cli_test

import (
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/app"
)

func TestEachSettingIsInTheHelpOfServe(t *testing.T) {
	help := strings.Join(strings.Fields(natsid(t, "help", "serve").out+natsid(t, "help", "connection").out), " ")
	for _, s := range app.Settings() {
		flag := "--" + s.Flag
		if s.Bare {
			flag = "--[no-]" + s.Flag
		}
		for _, want := range []string{flag, s.Default, s.Range, "($" + s.Env + ")", strings.TrimSuffix(s.Help, ".")} {
			if !strings.Contains(help, want) {
				t.Errorf("no %q in the help of serve", want)
			}
		}
		if !strings.HasSuffix(s.Help, ".") || s.Group == "" {
			t.Errorf("--%s: help %q in group %q, want sentences and a group", s.Flag, s.Help, s.Group)
		}
	}
}

func TestATextThatCannotBeReadIsNamedWithThePlaceWhereItWasWritten(t *testing.T) {
	natsid(t, "serve", "--deadline=soon", "--log-format=maybe").
		want(t, 2, "--deadline", `--log-format "maybe": want text or json`)
	t.Setenv("NATSID_HORIZON", "5")
	natsid(t, "serve", "--deadline=soon").want(t, 2, `--deadline "soon"`, `NATSID_HORIZON "5": want a duration`)
}
