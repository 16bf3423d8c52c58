package tests

import (
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/wait"
)

func TestAStartWaitsForTheDatabaseButNotForAPassword(t *testing.T) {
	t.Parallel()
	db := mysqltest.Start(t)
	db.Stop()
	p := launchProcess(t, "--listen", freePort(t), "--data", t.TempDir(), "--mysql", db.DSN(), "--log-level", "warn")
	wait.Until(t, "it finds no database", func() bool { return strings.Contains(p.log.String(), "trying again") })
	db.Run()
	p.waitReady(t)
	wrong := strings.Replace(db.DSN(), ":", ":wrong-", 1)
	code, out := run(t, patient(t), started(t, "--listen", freePort(t), "--mysql", wrong)...)
	if code == 0 || !strings.Contains(out, "cannot use MySQL") || strings.Contains(out, "wrong-") {
		t.Errorf("a wrong password: %s", out)
	}
}
