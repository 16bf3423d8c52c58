package fleetview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// A Fault says what is wrong (What), why if that is known (Why), and what an operator does about it (Do), with commands
// in backquotes.
type Fault struct {
	What string `json:"what"`
	Why  string `json:"why,omitempty"`
	Do   string `json:"do,omitempty"`
}

// Wrong returns the faults of workers, registries and tags, the worst first. The parameter more has further faults of
// tags, which the caller found in the tags' marks (next IDs). Faults of tags come before those of single workers: no
// worker issues IDs of such a tag.
func (s Snapshot) Wrong(more []Fault) []Fault {
	v, tags := s.Overview(), slices.Clip(more)
	for _, u := range s.Busiest() {
		if u.Failing {
			tags = append(tags, Fault{
				What: "tag " + u.Tag + ": loads fail, and its IDs last for " + Seconds(u.SecondsLeft),
				Do:   "see the log of its workers, and `natsid tag stats`",
			})
		}
	}
	if v.Ready == 0 || len(v.Registries) > 1 {
		return append(v.Faults(), tags...)
	}
	return append(tags, v.Faults()...)
}

// Faults returns what is wrong with workers and registries, the worst first; tags and alarms are not among them.
func (v Overview) Faults() (all []Fault) {
	add := func(do, what string, args ...any) { all = append(all, Fault{What: fmt.Sprintf(what, args...), Do: do}) }
	if n := len(v.Registries); n > 1 {
		add("run `natsid resume --keep REGISTRY` for the one that shall serve",
			"the workers are of %d registries, or know different eras of one", n)
	}
	var silent []string
	var bad []Fault                   // of workers; those of the same state and cause share one fault
	named := make(map[Fault][]string) // names of the workers, by their fault
	for _, r := range v.Rows {
		if !r.Answered {
			silent = append(silent, r.Name())
		} else if r.Class == Bad {
			f := Fault{What: r.State, Why: strings.ReplaceAll(strings.Join(r.Why, "; "), "not ready: ", "")}
			if named[f] == nil {
				bad = append(bad, f)
			}
			named[f] = append(named[f], r.Name())
		}
	}
	switch {
	case silent != nil && v.Alone:
		add("if they are well, this one is cut off from NATS or lacks rights: see `natsid permissions worker`",
			"no answer from %s, nor from any other worker", Names(silent))
	case silent != nil:
		add("run `natsid workers`, which says until when a number is blocked", "no answer from %s", Names(silent))
	}
	for _, f := range bad {
		all = append(all, Fault{What: Names(named[f]) + ": " + f.What, Why: f.Why})
	}
	if why := v.Numbers.Trouble; why != nil {
		add("check NATS, the namespace, and the rights that `natsid permissions` prints",
			"the worker numbers cannot be read: %s", Why(why))
	}
	for _, t := range v.Stages {
		if t.Role == "retrying" {
			add("run `natsid stamp status --from "+t.From+" --to "+t.To+"`", "stage %s: retrying: %s", t.Name, t.Why)
		}
	}
	return all
}

// nearlyFull is the share of a tag's numbers, 0 to 1, above which the tag counts as nearly full.
const nearlyFull = 0.9

// A TagFault is a tag that cannot be served, or whose numbers are used up or nearly so.
type TagFault struct {
	Tag  string
	Used float64 // the share of its numbers that is reserved, 0 to 1
	Fault
}

// FaultOf returns the fault of a tag, and whether the tag has one. unservable says why no request can get IDs of the
// tag; "" means that requests can. A tag has a fault, too, if nearly all numbers of its present period are reserved.
func FaultOf(tag string, r segment.Rules, mark int64, unservable string, now time.Time) (f TagFault, ok bool) {
	f = TagFault{Tag: tag, Used: r.Used(mark)}
	switch {
	case unservable == wire.Undecided:
		f.Used, f.What, f.Do = 1, unservable, "run `natsid tag update --next-id N "+Operand(tag)+"`"
	case unservable != "":
		f.Used, f.What = 1, unservable
	case f.Used >= nearlyFull && mark >= r.Begins(now):
		f.What = fmt.Sprintf("%.0f%% of its numbers are reserved", 100*f.Used)
		f.Do = "run `natsid tag update --max N " + Operand(tag) + "`"
	default:
		return f, false
	}
	f.What = "tag " + tag + ": " + f.What
	return f, subjects.CheckTag(tag) == nil // the name of a row may be no valid tag
}

// FullestFirst returns faults of tags, those with the highest Used first, and those with the same by name.
func FullestFirst(all []TagFault) (faults []Fault) {
	slices.SortFunc(all, func(a, b TagFault) int {
		return cmp.Or(cmp.Compare(b.Used, a.Used), cmp.Compare(a.Tag, b.Tag))
	})
	for _, f := range all {
		faults = append(faults, f.Fault)
	}
	return faults
}

// A RaisedAlarm is an alarm that one or more workers raised in the last 15 minutes with the same message.
type RaisedAlarm struct {
	wire.OpenAlarm
	Workers []string
	Over    bool // its condition has ended on all these workers
}

// lasting are the kinds of alarms that stay open although the worker serves again.
var lasting = []wire.Alarm{
	wire.AlarmStateFile, wire.AlarmTableWentBack, wire.AlarmTagFillsUp, wire.AlarmTagUndecided, wire.AlarmTimeEnds,
}

// raisedAgain is the longest time between two alarms while their cause lasts: alarms are raised each minute, after an
// attempt of up to 6 s.
const raisedAgain = 70 * time.Second

// raise adds an alarm of a worker. The alarm is over if the worker serves and has not raised it for [raisedAgain].
func (v *Overview) raise(a wire.OpenAlarm, of Row, now time.Time) {
	over := of.Class == Good && now.Sub(a.Last) > raisedAgain && !slices.Contains(lasting, a.Kind)
	i := slices.IndexFunc(v.Alarms, func(r RaisedAlarm) bool { return r.Kind == a.Kind && r.Message == a.Message })
	if i < 0 {
		v.Alarms = append(v.Alarms, RaisedAlarm{a, []string{of.Name()}, over})
		return
	}
	r := &v.Alarms[i]
	r.Workers, r.Over = append(r.Workers, of.Name()), r.Over && over
	if r.Since.After(a.Since) {
		r.Since = a.Since
	}
	if r.Last.Before(a.Last) {
		r.Last = a.Last
	}
}

// Open returns how many alarms are not over.
func (v Overview) Open() (n int) {
	for _, a := range v.Alarms {
		if !a.Over {
			n++
		}
	}
	return n
}

// Fault returns an open alarm with the first remedy of its kind.
func (r RaisedAlarm) Fault() Fault {
	do, _, _ := strings.Cut(r.Kind.Remedy(), ";")
	return Fault{What: string(r.Kind) + " on " + Names(r.Workers) + ": " + r.Message, Do: do}
}

// Why returns the text of an error for a person.
func Why(err error) string {
	return strings.ReplaceAll(err.Error(), "context deadline exceeded", "no answer in time")
}
