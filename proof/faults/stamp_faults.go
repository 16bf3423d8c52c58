//go:build linux

package main

import (
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/testkit/natsproxy"
)

// stampFaults strike stages that copy a stream, each message with an ID, and their dependencies. In every case the
// target must hold each message of the source once, in order, with an ID that was issued to no other message.
func stampFaults() []fault {
	cluster := fleet{servers: 3, workers: 2}
	// Servers are struck one after another, and with each the callers connected there.
	inTurn := []loss{
		{kinds: all, outcomes: []string{timeout, disconnected, noResponders}, afterEnd: 2 * time.Second},
		{kinds: []kind{short}, outcomes: []string{"503", "429"}, afterEnd: 11 * time.Second},
	}
	faults := []fault{
		{
			name:    "stamp-kill",
			summary: "SIGKILL of a stage, 100 times at random (15 in the short run), started again each time",
			fleet:   fleet{servers: 1, workers: 2}, inject: stamping(long, killStages), brief: true,
		},
		{
			name:    "stamp-two",
			summary: "two stages; SIGKILL of the one that copies, six times: the other takes over within 5 s",
			fleet:   cluster, inject: stamping(long, killInTurn),
		},
		{
			name: "stamp-pause",
			summary: "two stages; SIGSTOP of the one that copies until the other has taken over, and for 5 s more; " +
				"four times",
			fleet: cluster, inject: stamping(snowflake, pauseStages),
		},
		{
			name: "stamp-cut",
			summary: "a stage gets no acknowledgement of its writes, which land; then it is cut off, with and " +
				"without an end of its connection; each time another one takes over, and is killed when all is well",
			fleet: cluster, inject: stamping(snowflake, cutStage),
		},
		{
			name:    "stamp-servers",
			summary: "SIGKILL of each nats-server in turn, restarted after 3 s, under a stage",
			fleet:   cluster, inject: stamping(snowflake, killServersInTurn),
			losses: inTurn, gap: 15 * time.Second, shortGap: 15 * time.Second, recovery: 15 * time.Second,
		},
		{
			name:    "stamp-full",
			summary: "the target is full (max_bytes, discard new), and has room again: three times",
			fleet:   cluster, inject: stamping(long, fillTarget),
		},
		{
			name: "stamp-deleted",
			summary: "the target is deleted under a stage, which stops; and deleted and made again, where it stops, " +
				"too; another one copies to the new target what the source holds",
			fleet: cluster, inject: stamping(long, deleteTarget),
		},
	}
	for i := range faults {
		faults[i].gap = max(faults[i].gap, 5*time.Second) // stages take their share of the CPUs
	}
	return faults
}

// stamping creates a pipeline for a scene, which starts its stages, and ends the pipeline after it.
func stamping(k kind, scene func(*trial, *pipeline)) func(*trial) func() {
	return func(t *trial) func() {
		p := t.newPipeline(k)
		scene(t, p)
		p.finish()
		return nil
	}
}

func killStages(t *trial, p *pipeline) {
	kills := 100
	if t.opt.brief {
		kills = 15
	}
	s := p.stage(t.urls())
	p.progress()
	for range kills {
		t.sleep(time.Duration(p.rng.IntN(800)) * time.Millisecond)
		s.strike()
		s.start()
	}
	p.progress()
}

// takesOver is how long no message may arrive when one of two stages has died.
const takesOver = 5 * time.Second

func killInTurn(t *trial, p *pipeline) {
	p.stage(t.urls())
	p.progress()
	p.stage(t.urls())
	for range 6 {
		s := p.copying()
		s.strike()
		p.progress()
		s.start()
	}
	if p.standstill > takesOver {
		t.violation("nothing arrived for %v, more than %v", p.standstill, takesOver)
	}
}

func pauseStages(t *trial, p *pipeline) {
	p.stage(t.urls())
	p.progress()
	p.stage(t.urls())
	for range 4 {
		s := p.copying()
		t.logf("SIGSTOP of %s, message %d is copied", s.name, p.checked.Load())
		t.must(s.Signal(syscall.SIGSTOP))
		p.progress()
		t.sleep(5 * time.Second)
		t.must(s.Signal(syscall.SIGCONT))
		t.logf("SIGCONT of %s, message %d is copied", s.name, p.checked.Load())
		t.waitFor(startWithin, s.name+" stands by", func() bool { return p.copying() != s })
	}
}

func cutStage(t *trial, p *pipeline) {
	var urls []string
	var links []*natsproxy.Proxy
	for _, v := range t.servers {
		link, err := natsproxy.Start(v.addr)
		t.must(err)
		t.Cleanup(link.Close)
		links, urls = append(links, link), append(urls, link.URL())
	}
	p.stage(urls)
	p.progress()
	var other *stamper
	for _, part := range []struct {
		name string
		set  func(*natsproxy.Proxy)
	}{
		{"no acknowledgement passes", func(l *natsproxy.Proxy) { l.DropAcks(natsproxy.All) }},
		{"the connection is cut", func(l *natsproxy.Proxy) { l.Refuse(true); l.Cut() }},
		{"no byte passes", func(l *natsproxy.Proxy) { l.Stall(true) }},
	} {
		t.logf("%s, message %d is copied", part.name, p.checked.Load())
		for _, l := range links {
			part.set(l)
		}
		t.sleep(time.Second)
		if other == nil {
			other = p.stage(t.urls())
		} else {
			other.start()
		}
		p.progress()
		t.sleep(8 * time.Second) // longer than a write waits for its answer
		for _, l := range links {
			l.Pass()
		}
		t.sleep(2 * time.Second) // for messages under way to arrive
		other.strike()
		p.progress() // the stage behind the links copies again
	}
	other.start()
}

func killServersInTurn(t *trial, p *pipeline) {
	p.stage(t.urls())
	p.progress()
	for _, v := range t.servers {
		t.logf("SIGKILL of nats-server %s, message %d is copied", v.name, p.checked.Load())
		v.Kill()
		t.sleep(3 * time.Second)
		t.startServer(v)
		t.waitForReplicas()
		for _, name := range []string{fromStream, toStream} {
			t.waitFor(startWithin, name+" has three current replicas", func() bool { return t.current(name) })
		}
		p.progress()
	}
}

func fillTarget(t *trial, p *pipeline) {
	s := p.stage(t.urls())
	p.progress()
	for range 3 {
		// The checker makes no more room.
		p.held.Store(true)
		p.changeTarget(func(c *jetstream.StreamConfig) { c.MaxBytes, c.Discard = 4<<20, jetstream.DiscardNew })
		var last uint64
		t.waitFor(startWithin, "the target is full", func() bool {
			before := p.checked.Load()
			t.sleep(2 * time.Second)
			last = p.checked.Load()
			return last == before && p.published.Load() > last
		})
		t.logf("the target is full, message %d is copied", last)
		if !s.Running() {
			t.Fatalf("%s has ended: %v", s.name, s.Cmd.ProcessState)
		}
		p.changeTarget(func(c *jetstream.StreamConfig) { c.MaxBytes, c.Discard = -1, jetstream.DiscardOld })
		p.held.Store(false)
		p.progress()
	}
}

func (p *pipeline) changeTarget(change func(*jetstream.StreamConfig)) {
	ctx, cancel := p.t.within()
	defer cancel()
	s, err := p.js.Stream(ctx, toStream)
	p.t.must(err)
	c := s.CachedInfo().Config
	change(&c)
	_, err = p.js.UpdateStream(ctx, c)
	p.t.must(err)
}

func deleteTarget(t *trial, p *pipeline) {
	s := p.stage(t.urls())
	p.progress()
	for _, again := range []bool{false, true} {
		t.sleep(3 * time.Second)
		p.deleteTarget()
		if again {
			p.makeTarget()
		}
		t.waitFor(startWithin, s.name+" has stopped", func() bool { return !s.Running() })
		why, err := os.ReadFile(t.path(s.name + ".log"))
		t.must(err)
		last := strings.TrimSpace(string(why))
		last = last[strings.LastIndex(last, "\n")+1:]
		t.logf("%s has stopped, with exit code %d: %s", s.name, s.Cmd.ProcessState.ExitCode(), last)
		want := "there is no stream TO"
		if again {
			want = "deleted and made again"
		}
		if s.Cmd.ProcessState.ExitCode() == 0 || !strings.Contains(last, want) {
			t.violation("%s says nothing of that: want an exit code above 0 and %q", s.name, want)
		}
		if !again {
			p.makeTarget()
		}
		p.checkAgain()
		s.start()
		p.progress()
	}
}
