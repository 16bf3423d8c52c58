package overload

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/ledger"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/subjects"
)

// start returns callers of a worker that answers the i-th request, counted from 0, with
// what answer returns; nil for none.
func start(t *testing.T, answer func(i int, m *nats.Msg) *nats.Msg) *callers {
	t.Helper()
	url, i := natstest.Start(t), 0
	nc := natstest.Connect(t, url)
	if _, err := nc.Subscribe("id.snowflake", func(m *nats.Msg) {
		if a := answer(i, m); a != nil {
			a.Subject = m.Reply
			_ = nc.PublishMsg(a)
		}
		i++
	}); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	c, err := connect(Trial{URLs: []string{url}, Subject: "id.snowflake", Ledger: ledger.New(t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

func id(i int, _ *nats.Msg) *nats.Msg { return &nats.Msg{Data: strconv.AppendInt(nil, int64(i+1), 10)} }

func refused(code subjects.Code) *nats.Msg {
	return &nats.Msg{Header: nats.Header{subjects.HeaderErrorCode: {code.String()}}}
}

func TestAnAnswerIsWhatItSays(t *testing.T) {
	const all = 400
	c := start(t, func(i int, m *nats.Msg) *nats.Msg {
		switch i % 3 {
		case 0:
			return id(i, m)
		case 1:
			return refused(subjects.Unavailable)
		}
		return refused(subjects.TooMany)
	})
	for range 30 {
		c.send(all / 4 / 10)
	}
	c.trial.Subject = "id.nobody"
	c.send(all / 4)
	c.wait(t.Context())
	got := make(map[outcome]int)
	for _, r := range c.requests {
		got[r.outcome]++
	}
	want := map[outcome]int{issued: all / 4, 503: all / 4, 429: all / 4, noResponders: all / 4}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if rep, err := c.trial.Ledger.Close(); err != nil || rep.IDs != all/4 || rep.Repeats > 0 {
		t.Errorf("the ledger has %+v, %v", rep, err)
	}
	if err := c.failed(); err != nil {
		t.Error(err)
	}
}

func TestRequestsAreCountedByTheTimeTheyWereSent(t *testing.T) {
	at := func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
	c := &callers{requests: []request{
		{at(0), at(1), issued}, // while the capacity was measured
		{at(1000), at(10), issued},
		{at(1001), at(2000), issued},
		{at(1002), at(2001), issued},
		{at(1003), at(2001), 503},
		{at(1004), 0, open},
		{at(1005), at(1), noResponders},
		{at(1006), at(1), 429},
		{at(2000), at(1), noResponders}, // below the capacity
		{at(2150), at(501), issued},
		{at(2250), at(500), issued},
		{at(2251), 0, open},
		{at(2450), at(1), issued},
	}}
	f := Figures{Capacity: 4}
	c.count(&f, at(1000), at(2000), at(2500))
	got := []int{f.Asked, f.InTime, f.Late, f.Never, f.NoResponders, f.Codes[429], f.Codes[503], f.Loose}
	if want := []int{7, 2, 2, 1, 1, 1, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if f.Well != at(300) || f.After != 0.6 || f.Share != 0.5 || f.Offered != 7 || f.Slowest != at(2001) {
		t.Errorf("%+v", f)
	}
	if len(f.Cells()) != len(Columns) {
		t.Errorf("%d cells, %d columns", len(f.Cells()), len(Columns))
	}
}

func TestALimitedProcessStandsStillOnceItsQuotaIsUsedUp(t *testing.T) {
	busy := exec.Command("sh", "-c", "while :; do :; done")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	defer busy.Wait()
	defer busy.Process.Kill()
	release, err := Limit(busy.Process.Pid, time.Millisecond)
	if errors.Is(err, ErrNoQuota) {
		t.Skip(err)
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/cpu/natsid-overload-*/cgroup.procs")
	more, _ := filepath.Glob("/sys/fs/cgroup/natsid-overload-*/cgroup.procs")
	i := slices.IndexFunc(append(groups, more...), func(name string) bool {
		procs, _ := os.ReadFile(name)
		return slices.Contains(strings.Fields(string(procs)), strconv.Itoa(busy.Process.Pid))
	})
	if i < 0 {
		t.Fatal("the process is in no control group")
	}
	group := filepath.Dir(append(groups, more...)[i])
	wait.Until(t, "it is throttled", func() bool {
		stat, err := os.ReadFile(filepath.Join(group, "cpu.stat"))
		if err != nil {
			t.Fatal(err)
		}
		return !strings.Contains(string(stat), "nr_throttled 0\n") && strings.Contains(string(stat), "nr_throttled")
	})
	release()
	if _, err := os.Stat(group); !os.IsNotExist(err) {
		t.Errorf("the control group is left: %v", err)
	}
}
