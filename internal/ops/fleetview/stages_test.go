package fleetview_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/internal/wire"
)

func TestStagesAreShownWhileTheySayHowTheyAre(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Start(t))
	var stages fleetview.Stages
	var passed atomic.Int64
	now := func() time.Time { return time.Unix(passed.Load(), 0) }
	if err := stages.Listen(nc, ns, now); err != nil {
		t.Fatal(err)
	}
	say := func(v wire.StageView) {
		t.Helper()
		body, err := json.Marshal(v)
		if err == nil {
			err = nc.Publish(wire.Stage(ns), body)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	shown := func() (text string) {
		for _, v := range stages.Now(now()) {
			text += fmt.Sprintf("%s %s-%s %d;", v.Name, v.From, v.To, v.Position)
		}
		return text
	}
	eventually := func(want string) {
		t.Helper()
		wait.Until(t, fmt.Sprintf("%q is shown", want), func() bool { return shown() == want })
	}
	say(wire.StageView{Name: "oslo/2", From: "ORDERS", To: "B", Position: 7})
	say(wire.StageView{Name: "oslo/1", From: "ORDERS", To: "A", Position: 5})
	say(wire.StageView{From: "nobody"})
	say(wire.StageView{Name: "long", Why: strings.Repeat("x", 10_000)})
	eventually("oslo/1 ORDERS-A 5;oslo/2 ORDERS-B 7;")
	passed.Store(15)
	say(wire.StageView{Name: "oslo/1", From: "ORDERS", To: "A", Position: 6})
	eventually("oslo/1 ORDERS-A 6;oslo/2 ORDERS-B 7;")
	passed.Store(16)
	if got, want := shown(), "oslo/1 ORDERS-A 6;"; got != want {
		t.Errorf("%q is shown, want %q: one has been silent", got, want)
	}
	say(wire.StageView{Name: "oslo/1", From: "ORDERS", To: "A", Role: wire.StageStopped})
	eventually("")
	for i := range 1100 {
		say(wire.StageView{Name: fmt.Sprint("made up ", i)})
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "1,000 stages are kept", func() bool { return len(stages.Now(now())) == 1000 })
}
