package scenarios

import (
	"encoding/json"
	"time"

	"github.com/natsid/natsid/proof/conformance/internal/rig"
	"github.com/natsid/natsid/subjects"
)

var onPrefetch = law("Prefetch",
	full("prefetch",
		"calls get IDs from memory, also while nobody answers, and the next range is asked for in time", playPrefetch),
	full("prefetch-age", "no ID is given out that is older than its age, from before its request was sent", playAge),
	full("prefetch-many", "nextN takes held IDs if they suffice, and else none of them", playMany),
	full("prefetch-strict", "IDs of a strict tag are not held, and rise", playStrict),
)

func playPrefetch(s *Stage) {
	s.connect(nil)
	const n = 200
	s.Desk.Say(func(r *rig.Request) {
		if r.Nth == 1 {
			r.Issue()
		}
	})
	target := prefetch(order, n, time.Minute)
	var ids []subjects.ID
	for range n {
		o := s.next(target, 2*time.Second)
		s.want(o.failure == nil, "%v, after %d of %d held IDs", o, len(ids), n)
		s.want(s.Desk.Origin(o.id()).Nth == 1, "ID %d is of %v, want it from memory", o.id(), s.Desk.Origin(o.id()))
		ids = append(ids, o.id())
		s.want(len(ids) > 1 || s.stats(target).Held == n-1, "%d IDs are held, want %d", s.stats(target).Held, n-1)
	}
	s.distinct(ids...)
	second := s.arrived("order", 2)
	s.want(second.N == n, "%v, want a range of %d", second, n)
	s.want(second.Header.Get(subjects.HeaderPrefetch) != "", "%v lacks the header %s", second, subjects.HeaderPrefetch)
	s.Desk.Say(rig.Issue)
	second.Issue()
	ids = append(ids, s.mustNext(target))
	s.distinct(ids...)
}

func playAge(s *Stage) {
	s.connect(nil)
	const age, late = 400 * time.Millisecond, 150 * time.Millisecond
	s.Desk.Say(after(late))
	target := prefetch(order, 10_000, age)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		o := s.next(target, long)
		s.want(o.failure == nil, "%v", o)
		from := s.Desk.Origin(o.id())
		old := o.began.Sub(from.At)
		s.want(old <= age, "ID %d was given out %v after its request had arrived, want %v at most", o.id(), old, age)
	}
}

func playMany(s *Stage) {
	s.connect(nil)
	const n = 100
	target := prefetch(order, n, time.Minute)
	ids := []subjects.ID{s.mustNext(target)}
	draw := func(many, from int) {
		o := s.nextN(target, many, short)
		s.want(o.failure == nil, "%v", o)
		for _, run := range o.runs {
			r := s.Desk.Origin(run[0])
			s.want(r.N == from, "%d IDs are of %v, want them of one for %d", many, r, from)
			for id := run[0]; id <= run[1]; id++ {
				ids = append(ids, id)
			}
		}
	}
	draw(40, n)
	for range 5 {
		draw(3*n, 3*n)
	}
	held := s.stats(target).Held
	s.want(held == n-1-40, "%d IDs are held after calls that took none of %d", held, n-1-40)
	draw(40, n)
	s.Desk.Say(rig.Silence)
	draw(19, n)
	s.distinct(ids...)
}

func playStrict(s *Stage) {
	s.connect(object{"namespace": s.natsid()})
	name := "strict." + s.NS
	s.create(subjects.TagCreate{Tag: name, Strict: true})
	last := subjects.ID(0)
	for range 20 {
		id := s.mustNext(tag(name))
		s.want(id > last, "ID %d came after ID %d", id, last)
		last = id
	}
	held := prefetch(tag(name), 10, time.Second)
	for range 3 {
		o := s.next(held, long)
		s.want(o.kind == "BadRequest", "%v, want BadRequest", o)
		o = s.nextN(held, 5, long)
		s.want(o.failure == nil && o.runs[0][0] > last, "%v, want IDs above %d", o, last)
		last = o.runs[len(o.runs)-1][1]
	}
}

// natsid returns the namespace of the real natsid.
func (s *Stage) natsid() string {
	ns, err := s.Natsid()
	s.check(err)
	return ns
}

// create creates a tag of the real natsid.
func (s *Stage) create(t subjects.TagCreate) {
	nc, err := rig.Connect(s.NATS)
	s.check(err)
	defer nc.Close()
	body, err := json.Marshal(t)
	s.check(err)
	for end := time.Now().Add(long); ; { // a busy worker may not confirm at once that a tag is strict
		m, err := nc.Request(subjects.Namespace(s.natsid()).TagCreate(), body, slack)
		s.check(err)
		e := subjects.ParseError(m.Header)
		if e == nil || e.Code == subjects.Conflict {
			return
		}
		s.want(e.Code == subjects.Unavailable && time.Now().Before(end), "the tag %s cannot be created: %v", t.Tag, e)
	}
}
