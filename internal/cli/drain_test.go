package cli_test

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

func TestADrainedWorkerLeavesCallersToOthersUntilItIsUndoneOrRestarted(t *testing.T) {
	t.Parallel()
	srv := startServer(t)
	at := "--nats=" + srv.ClientURL()
	first := serve(t, at, "--name=first of two", "--auto-create-tags")
	serve(t, at, "--name=second", "--auto-create-tags")

	natsid(t, "drain", "third", at).want(t, 1, `no worker "third"`, "natsid workers")
	natsid(t, "drain", "second", at, "--namespace=other").want(t, 3, "no worker answers", "--namespace")
	got := answered(t, "drain", "first of two", at)
	got.want(t, 0, "")
	number := regexp.MustCompile(`^first of two, worker number (\d+): drained`).FindStringSubmatch(got.out)
	if number == nil {
		t.Fatalf("drained: %q", got.out)
	}
	for _, want := range []string{
		`(?m)^` + number[1] + ` +first of two +drained `, `(?m)^\d+ +second +live `,
		`(?m)^first of two, segment: not ready: drained`, `(?m)^first of two, snowflake: not ready: drained`,
	} {
		eventually(t, "workers are listed as "+want, func() bool { // a busy one answers too late
			return regexp.MustCompile(want).MatchString(natsid(t, "workers", at).out)
		})
	}
	for range 20 {
		answered(t, "get", "segment", "order", at).want(t, 0, "")
	}

	// Nobody is left, which is said.
	answered(t, "drain", "second", at).want(t, 0, "No other worker is ready for segment", "snowflake")
	nc, err := nats.Connect(srv.ClientURL(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ask := func(subject string) error { _, err := nc.Request(subject, nil, time.Minute); return err }
	for _, subject := range []string{"id.segment.order", "id.snowflake", "id.tag.list"} {
		if err := ask(subject); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s: %v, want no responders", subject, err)
		}
	}
	// Its number is its own until it stops.
	if err := ask("id.worker." + number[1]); err != nil {
		t.Errorf("worker number %s: %v", number[1], err)
	}

	if got := answered(t, "drain", number[1], at, "--undo"); got.code != 0 ||
		!strings.HasPrefix(got.out, "first of two, worker number "+number[1]+": takes requests again") {
		t.Errorf("undone by number: %+v", got)
	}
	answered(t, "get", "segment", "order", at).want(t, 0, "")

	// It ends with the process.
	answered(t, "drain", number[1], at).want(t, 0)
	first.stop().want(t, 0)
	serve(t, at, "--name=first of two", "--data="+first.data)
	answered(t, "get", "segment", "order", at).want(t, 0, "")
}

func TestOfTwoWorkersOfOneNameNoneIsDrained(t *testing.T) {
	t.Parallel()
	at := "--nats=" + startServer(t).ClientURL()
	serve(t, at, "--name=twin")
	serve(t, at, "--name=twin")
	natsid(t, "drain", "twin", at).want(t, 1, `2 workers are named "twin"`, "give the number of one")
	if got := natsid(t, "workers", at); strings.Contains(got.out, "drained") {
		t.Errorf("listed\n%s", got.out)
	}
}
