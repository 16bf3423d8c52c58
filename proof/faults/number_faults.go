//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/testkit/ledger"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

const (
	// lead is how far the clocks at midnight are ahead or behind: workers tolerate up to a second.
	lead = 900 * time.Millisecond
	// dateWithin is how early or late an ID may bear a date: the tolerance, and the second by which loose tags are
	// loaded early, or of which the calendar looks once.
	dateWithin = 2 * time.Second

	holeTag  = "faults.hole"
	mostHole = 100
)

// numberFaults strike what the rules of a tag promise about its numbers.
func numberFaults() []fault {
	return []fault{
		{
			name: "midnight",
			summary: "all tags are daily, and a day begins; the clocks of two workers are 0.9 s ahead and behind, " +
				"and the one ahead is set back over midnight",
			fleet:  fleet{servers: 3, workers: 3, daily: true, clocks: []time.Duration{lead, 0, -lead}},
			inject: throughMidnight, lasts: 4 * time.Second,
			losses: []loss{untilItLeft}, single: true,
			alarms: alarms{
				wire.AlarmClockStep: {1, 1}, wire.AlarmClockSkew: {0, 1}, wire.AlarmClockBehind: {0, 1},
			},
		},
		{
			name:    "worker-kill-hole",
			summary: "SIGKILL of two workers in turn, under load of a tag with --max-hole 100",
			fleet:   threeWorkers, inject: killWithHole,
			losses: []loss{{
				kinds: all, outcomes: []string{timeout, disconnected}, afterEnd: 500 * time.Millisecond, most: 40,
			}},
			single: true,
		},
	}
}

// days judges the IDs of daily tags around a midnight. The zero value judges none. It is safe for concurrent use.
type days struct {
	midnight      time.Time // a day begins
	before, after int64     // its eve and itself, yyyyMMdd

	mu          sync.Mutex
	early, late time.Duration // how long before midnight an ID of after came, and a request after it got one of before
	others      int64         // answers of another date
	old         [kinds]int64  // answers of before
	first       [kinds]int64  // lowest number of after

	longest, usual [kinds]time.Duration // waits of requests under way within dateWithin of midnight, and of others
}

// plan chooses the midnight, a full minute that leaves the time to start, and returns the time zone that has it.
func (d *days) plan(now time.Time) (zone string) {
	d.midnight = now.UTC().Add(20 * time.Second).Truncate(time.Minute).Add(time.Minute)
	minutes := d.midnight.Hour()*60 + d.midnight.Minute()
	if minutes > 12*60 {
		minutes -= 24 * 60
	}
	there := time.FixedZone("", -60*minutes)
	d.before, d.after = dateOf(d.midnight.Add(-1).In(there)), dateOf(d.midnight.In(there))
	return d.midnight.In(there).Format("-07:00")
}

func dateOf(t time.Time) int64 { return int64(t.Year()*10000 + int(t.Month())*100 + t.Day()) }

// saw takes in an answer with an ID.
func (d *days) saw(k kind, sent, came time.Time, id int64) {
	if d.midnight.IsZero() || k == snowflake {
		return
	}
	const numbers = 100_000_000 // of a day
	d.mu.Lock()
	defer d.mu.Unlock()
	switch id / numbers {
	case d.before:
		d.old[k]++
		d.late = max(d.late, sent.Sub(d.midnight))
	case d.after:
		if n := id % numbers; d.first[k] == 0 || n < d.first[k] {
			d.first[k] = n
		}
		d.early = max(d.early, d.midnight.Sub(came))
	default:
		d.others++
	}
	longest := &d.usual
	if came.After(d.midnight.Add(-dateWithin)) && sent.Before(d.midnight.Add(dateWithin)) {
		longest = &d.longest
	}
	longest[k] = max(longest[k], came.Sub(sent))
}

// judgeDays records the dates that no clock explains, and numbers that did not begin again.
func (t *trial) judgeDays() {
	d := &t.load.days
	if d.midnight.IsZero() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t.note = fmt.Sprintf("the new date came up to %s before midnight, the old one up to %s after it", seconds(d.early),
		seconds(d.late))
	if d.early > dateWithin || d.late > dateWithin || d.others > 0 {
		t.violation("%s; %d answers had another date; want up to %v, and none", t.note, d.others, dateWithin)
	}
	for _, k := range []kind{long, short, strict} {
		t.note += fmt.Sprintf("; longest wait for %v at midnight %s, otherwise %s", k, seconds(d.longest[k]),
			seconds(d.usual[k]))
		// The first answers may be copies that clients drop.
		if d.old[k] == 0 || d.first[k] < 1 || d.first[k] > mostHole {
			t.violation("%v: after %d answers of the old day, the lowest number of the new one is %d",
				k, d.old[k], d.first[k])
		}
	}
}

func throughMidnight(t *trial) func() {
	t.sleep(time.Until(t.load.days.midnight) + lead/2)
	t.from = t.load.now()
	return setClock(-lead)(t)
}

// killWithHole kills two workers while a tag is requested, and computes how many of its IDs nobody got.
func killWithHole(t *trial) func() {
	t.createTag(t.conn, subjects.TagCreate{Tag: holeTag, MaxHole: mostHole})
	ctx, stop := context.WithCancel(t.ctx)
	defer stop()
	issued, unanswered := ledger.New(t.dir), new(atomic.Int64)
	var callers sync.WaitGroup
	for i := range 2 * len(t.load.links) {
		callers.Go(func() { t.load.links[i/2].askMany(ctx, holeTag, issued, unanswered) })
	}
	killed := t.workers[:2]
	for _, w := range killed {
		t.sleep(2 * time.Second)
		t.logf("SIGKILL of %s", w.name)
		w.Kill()
		t.sleep(time.Second)
		w.restart()
	}
	t.sleep(2 * time.Second)
	stop()
	callers.Wait()
	got, err := issued.Close()
	t.must(err)
	reserved, left := t.reserved(holeTag)
	holes, most := reserved-(got.IDs-got.Repeats)-left, int64(len(killed)*mostHole)+unanswered.Load()
	t.note = fmt.Sprintf("of %d IDs %d were lost, with --max-hole %d, %d kills and %d IDs of requests without answer",
		reserved, holes, mostHole, len(killed), unanswered.Load())
	if got.Repeats > 0 {
		t.wrong("%d IDs of tag %s were issued twice", got.Repeats, holeTag)
	}
	if holes < 0 || holes > most {
		t.violation("%s", t.note)
	}
	return nil
}

// askMany requests IDs of a tag until ctx ends, and counts those of requests that got none.
func (k *link) askMany(ctx context.Context, tag string, issued *ledger.Ledger, unanswered *atomic.Int64) {
	for i := 0; ctx.Err() == nil; i++ {
		n := 1
		if i%10 == 0 {
			n = 30
		}
		m, err := k.nc.Request(namespace.Segment(tag), strconv.AppendInt(nil, int64(n), 10), callerWaits)
		if err != nil || refusal(m) != "" {
			unanswered.Add(int64(n))
			continue
		}
		runs, _ := subjects.ParseRuns(m.Data)
		for _, run := range runs {
			_ = issued.Add(int64(run.First), int64(run.Last)) // Close returns the error
		}
	}
}

// reserved returns how many IDs of a tag that began at 1 were loaded, and how many of them workers hold.
func (t *trial) reserved(tag string) (all, left int64) {
	var tags []subjects.TagInfo
	var workers []wire.WorkerStats
	for command, into := range map[string]any{"list": &tags, "stats": &workers} {
		out, err := t.natsid("tag", command, "--json")
		t.must(err)
		t.must(json.Unmarshal([]byte(out), into))
	}
	for _, info := range tags {
		if info.Tag == tag {
			all = int64(info.NextID) - 1
		}
	}
	for _, w := range workers {
		for _, s := range w.Busiest {
			if s.Tag == tag {
				left += s.Left
			}
		}
	}
	return all, left
}
