package cli_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/testkit/wait"
)

func TestStatusShowsTheFleetAndEndsWith1WhileAnythingIsWrong(t *testing.T) {
	t.Parallel()
	s := serve(t, "--name=w1")
	nats := "--nats=" + s.url
	second := serve(t, "--name=w2", nats, "--data="+filepath.Join(t.TempDir(), "two"))
	answered(t, "tag", "create", "half", "--max=1000", "--step=50", nats).want(t, 0, "")
	answered(t, "get", "segment", "half", nats).want(t, 0, "")
	form := []string{
		`WORKER +NUMBER +VERSION +STATE`, `w1 +\d+ +\S+ +serving`, `w2 +\d+ +\S+ +serving`, ``,
		`REGISTRY +ERA +LAYOUT +PINNED +WORKERS`, `\w+ +\S+ +41\+10\+12 +false +2`, ``,
		`STORE +REGISTRY +TAGS +STATE`, `kv +\w+ +1 +in order`,
	}
	wait.Until(t, "two workers serve", func() bool {
		got := natsid(t, "status", nats)
		return got.code == 0 && matchLines(got.out, form...)
	})
	answered(t, "tag", "update", "half", "--next-id=1001", nats).want(t, 0, "")
	wait.Until(t, "a tag that is full is in trouble", func() bool {
		got := natsid(t, "status", nats)
		return got.code == 1 && strings.Contains(got.out, "\ntag half: 100% of its numbers are reserved") &&
			strings.Contains(got.err, "1 fault, the first: tag half: 100%")
	})
	second.stop()
	s.stop()
	natsid(t, "status", nats).want(t, 1, "cannot reach NATS")
}
