//go:build linux

package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/wire"
)

// figures counts the outcomes of the load, and ends the load.
func (t *trial) figures() (r result) {
	l := t.load
	l.mu.Lock() // answers may still come, too late to count
	defer l.mu.Unlock()
	r = result{
		took: l.quit, stalled: l.stalled, ids: l.ids.Load(), gaps: l.gaps, repeats: l.askedTwice,
		failures: make(map[string]int64), alarms: make(map[wire.Alarm]int),
		calls: t.callers.begun, failedCalls: make(map[string]int64), longest: t.callers.longest.took,
	}
	for _, n := range l.sent {
		r.requests += n
	}
	for _, f := range l.failures {
		r.failures[f.outcome]++
		t.recovered = max(t.recovered, f.at-t.till)
	}
	t.logf("the longest call: %v", t.callers.longest)
	for _, f := range t.callers.failures {
		r.failedCalls[f.outcome]++
		t.recovered = max(t.recovered, f.at-t.till)
	}
	r.recovered = t.recovered
	for _, a := range l.alarms {
		r.alarms[a.Kind]++
		t.logf("alarm %s of %s at %.3f: %s", a.Kind, a.Instance, a.Time.Sub(l.start).Seconds(), a.Message)
	}
	if t.db != nil {
		if err := t.db.DB().QueryRowContext(t.ctx, "SELECT VERSION()").Scan(&r.database); err != nil {
			t.violation("MySQL does not answer in the end: %v", err) // and what was issued is judged even so
		}
	}
	r.bare, r.leader = t.slowestBare()
	r.order = l.rising.verdict()
	for k, of := range l.ledgers {
		sent := t.callers.copies(kind(k))
		t.logf("clients, %v: %d requests, %d hedges, %d retries", kind(k), sent.Requests, sent.Hedges, sent.Retries)
		rep, err := of.Close()
		t.must(err)
		excused, err := l.early[k].Close()
		t.must(err)
		r.repeats += rep.Repeats - excused.Repeats
		if rep.Repeats == excused.Repeats {
			continue
		}
		for _, e := range rep.Examples {
			t.wrong("%v: %v was issued twice", kind(k), e)
		}
	}
	return r
}

// judge records every broken promise.
func (t *trial) judge(r result) {
	if err := t.load.err(); errors.Is(err, nats.ErrSlowConsumer) {
		t.violation("%v", err)
	} else if err != nil { // such as an answer that has an ID twice
		t.wrong("%v", err)
	}
	t.checkProcesses()
	if r.repeats > 0 {
		t.wrong("%d IDs were issued twice", r.repeats)
	}
	for _, fault := range r.order.faults {
		t.wrong("strict: %s", fault)
	}
	if t.fault.random {
		t.judgeEnd()
		return
	}
	t.judgeDays()
	t.judgeFailures()
	t.judgeCalls()
	t.judgeGaps(r)
	if limit := t.fault.recoveryLimit(); r.recovered > limit {
		t.violation("the cluster recovered %v after the fault's end, later than %v",
			r.recovered.Round(time.Millisecond), limit)
	}
	t.judgeAlarms(r)
	t.judgeRefusals()
	for _, b := range bursts(t.load.refusals()) {
		t.logf("strict ended 503; slowest bare write in that time: %s", t.probe.beside(b))
	}
}

// judgeAlarms records the kinds of alarm that were raised too often or too rarely.
func (t *trial) judgeAlarms(r result) {
	kinds := maps.Clone(r.alarms)
	delete(kinds, wire.AlarmGrantsLost) // not a promise: it reports a gap for audits
	most := make(alarms)
	maps.Copy(most, t.fault.alarms)
	for kind, n := range t.explained {
		most[kind] = times{most[kind][0], most[kind][1] + n}
	}
	for kind := range most {
		kinds[kind] += 0
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		if want, got := most[kind], r.alarms[kind]; got < want[0] || got > want[1] {
			t.violation("%d alarms %s, want %v", got, kind, want)
		}
	}
}

// judgeGaps records the kinds whose callers got no IDs for too long.
func (t *trial) judgeGaps(r result) {
	for k, gap := range r.gaps {
		if most, bounded := t.fault.gapLimitOf(kind(k)); bounded && gap > most {
			t.violation("%v: no IDs for %v, more than %v", kind(k), gap.Round(time.Millisecond), most)
		}
	}
}

// judgeLastSecond records missing answers in the last second of the load. No loss is allowed there: only this
// distinguishes a cluster that has recovered from one that never will.
func (t *trial) judgeLastSecond() {
	last := t.load.quit - time.Second
	var n int
	for _, x := range slices.Concat(t.load.failed(), t.callers.failed()) {
		if x.at > last {
			n++
		}
	}
	if n > 0 {
		t.violation("in the last second %d requests still got no IDs", n)
	}
}

// judgeEnd records violations at the end of a random sequence.
func (t *trial) judgeEnd() {
	for _, x := range t.load.failed() {
		if slices.Contains([]string{"400", "404", "500"}, x.outcome) {
			t.violation("a request for %v ended with %s", x.kind, x.outcome)
		}
	}
	if limit := t.fault.recoveryLimit(); t.recovered > limit {
		t.violation("the cluster recovered only %v after the last fault", t.recovered)
	}
}

// judgeFailures records the failures that no loss of the fault allows.
func (t *trial) judgeFailures() {
	used := make([]int, len(t.fault.losses))
	over := make(map[string][]time.Duration)
	for _, x := range t.load.failed() {
		i := slices.IndexFunc(t.fault.losses, func(l loss) bool { return l.allows(t, x) })
		if i < 0 {
			over[x.String()] = append(over[x.String()], x.at)
			continue
		}
		used[i]++
	}
	t.notServed("requests", over)
	for i, l := range t.fault.losses {
		if l.most > 0 && used[i] > l.most {
			t.violation("%d requests of %v ended with %v, more than %d", used[i], l.kinds, l.outcomes, l.most)
		}
	}
}

// judgeCalls records the calls through package client that had to get IDs and did not.
func (t *trial) judgeCalls() {
	over := make(map[string][]time.Duration)
	for _, x := range t.callers.failed() {
		if !t.fault.mayFail(t, x) {
			over[x.String()] = append(over[x.String()], x.at)
		}
	}
	t.notServed("calls through the client", over)
}

// notServed records when requests were sent, or calls began, that had to get IDs and did not.
func (t *trial) notServed(what string, over map[string][]time.Duration) {
	for _, x := range slices.Sorted(maps.Keys(over)) {
		at := over[x]
		text := fmt.Sprintf("%d %s ended with %s, begun %v (the fault lasted from %v)",
			len(at), what, x, span{slices.Min(at), slices.Max(at)}, span{t.from, t.till})
		if x == (failure{kind: strict, outcome: "503"}).String() {
			text += t.besideBursts(at)
		}
		t.violation("%s", text)
	}
}
