//go:build linux

package main

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/testkit/natstest"
)

// startProbe returns a probe, the load that it is beside, and JetStream as others reach it.
func startProbe(t *testing.T) (*probe, *load, jetstream.JetStream) {
	t.Helper()
	url := natstest.Start(t)
	js := natstest.JetStream(t, url)
	l := &load{}
	l.begin()
	p, err := newProbe(l, []string{url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.nc.Close)
	return p, l, js
}

func TestTheProbeWritesByCompareAndSetAndSaysWhenItCannot(t *testing.T) {
	t.Parallel()
	p, l, js := startProbe(t)
	if err := p.open(t.Context(), jetstream.KeyValueConfig{Bucket: probeBucket}); err != nil {
		t.Fatal(err)
	}
	write := func(what string) {
		t.Helper()
		if err := p.write(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	write("the first")
	first := p.rev
	write("the second")
	if p.rev <= first {
		t.Errorf("revision %d after %d", p.rev, first)
	}
	p.rev = first // as if the answer had been lost
	write("one that came too late is answered, too")
	write("after that")
	if err := js.DeleteKeyValue(t.Context(), probeBucket); err != nil {
		t.Fatal(err)
	}
	if err := p.write(); err == nil {
		t.Error("a write to a bucket that is gone was acknowledged")
	}
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: probeBucket}); err != nil {
		t.Fatal(err)
	}
	if err := p.write(); err == nil {
		t.Error("a write was acknowledged where there is no entry")
	}
	all := p.writes.meanwhile(span{0, l.now()})
	if all.writes != 6 || all.failed != 2 || all.slowest.took() <= 0 {
		t.Errorf("%+v", all)
	}
}

// probed returns a trial with a fault from 10 s to 20 s, beside which bare writes were made.
func probed(t *testing.T, writes ...write) *trial {
	s := newTrial(t, fault{})
	s.from, s.till = 10*time.Second, 20*time.Second
	s.load.start = time.Now().Add(-time.Minute)
	s.probe = &probe{load: s.load}
	s.probe.writes.all = writes
	return s
}

func ms(from, till int) span {
	return span{time.Duration(from) * time.Millisecond, time.Duration(till) * time.Millisecond}
}

func TestABurstOfRefusalsShowsTheBareWritesBesideItAndStillFailsTheTrial(t *testing.T) {
	lost := errors.New("no answer")
	s := probed(t, write{ms(1000, 5000), nil}, write{ms(11900, 12040), nil}, write{ms(12100, 12130), nil},
		write{ms(14000, 14900), nil}, write{ms(30500, 32500), lost}, write{ms(32600, 32610), nil})
	s.probe.asks.all = []write{{ms(11950, 12050), nil}, {ms(12100, 13000), lost}}
	for _, r := range []span{ms(13000, 13500), ms(12000, 12750), ms(31000, 32700), ms(40000, 40100)} {
		s.load.refused = append(s.load.refused, r)
		s.load.failures = append(s.load.failures, failure{strict, "503", r.from})
	}
	s.judgeFailures()
	if len(s.violations) != 1 {
		t.Fatalf("%q", s.violations)
	}
	got, want := s.violations[0], "4 requests ended with strict 503, begun 12.00 s to 40.00 s "+
		"(the fault lasted from 10.00 s to 20.00 s); slowest bare write meanwhile: 0.14 s (from 12.00 s to 13.50 s), "+
		"answer of the marks' leader: failed after 0.90 s, 1 of 2 failed; "+
		"failed after 2.00 s (from 31.00 s to 32.70 s), 1 of 2 failed, answer of the marks' leader: none; "+
		"none (from 40.00 s to 40.10 s), "+
		"answer of the marks' leader: none"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestARefusalOfTheStrictTagIsKeptToItsAnswer(t *testing.T) {
	l := &load{}
	l.begin()
	sent := l.start.Add(3 * time.Millisecond)
	l.fail(request{kind: short, at: sent}, "503")
	l.fail(request{kind: strict, at: sent}, "429")
	l.fail(request{kind: strict, at: sent}, "503")
	if got := l.refusals(); len(got) != 1 || got[0].from != 3*time.Millisecond || got[0].till > l.now() {
		t.Errorf("%v", got)
	}
}
