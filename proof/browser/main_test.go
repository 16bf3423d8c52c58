package browser_test

import (
	"context"
	"os"
	"testing"

	"github.com/natsid/natsid/internal/cli"
)

// execEnv makes the test binary run as natsid, for a worker that is killed.
const execEnv = "NATSID_BROWSER_EXEC"

func TestMain(m *testing.M) {
	if os.Getenv(execEnv) != "" {
		os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}
