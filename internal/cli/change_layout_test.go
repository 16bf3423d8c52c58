package cli_test

import (
	"strconv"
	"strings"
	"testing"
)

func TestALayoutIsChangedWhereNoIDRepeats(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	nats := "--nats=" + srv.ClientURL()
	snowflake := func() int64 {
		t.Helper()
		got := answered(t, "get", "snowflake", nats)
		id, err := strconv.ParseInt(strings.TrimSpace(got.out), 10, 64)
		if err != nil {
			t.Fatalf("%+v, %v", got, err)
		}
		return id
	}
	change := func(args ...string) result {
		t.Helper()
		return answered(t, append([]string{"change-layout", nats}, args...)...)
	}
	old := serve(t, nats)
	last := snowflake()
	change("--layout=41+8+14", "--yes").want(t, 1, "heartbeat")
	old.stop().want(t, 0)

	change("--yes").want(t, 2, "--layout")
	change("--layout=js53", "--yes").want(t, 1, "no epoch")
	change("--layout=41+8+13", "--yes").want(t, 1, "--epoch 19")
	change("--layout=41+8+14", "--epoch=2020-01-01", "--yes").want(t, 1, "not changed")
	if got := change("--layout=41+8+14"); got.code != 0 || !strings.Contains(got.out, "Nothing was changed") {
		t.Errorf("without --yes: %+v", got)
	}
	if got := change("--layout=41+8+14", "--yes"); got.code != 0 || !strings.Contains(got.out, "--layout 41+8+14") {
		t.Errorf("with --yes: %+v", got)
	}
	natsid(t, "serve", nats, "--http=", "--data=").want(t, 1, "another layout")
	serve(t, nats, "--layout=41+8+14")
	if id := snowflake(); id <= last {
		t.Errorf("%d is not above the old %d", id, last)
	}
}
