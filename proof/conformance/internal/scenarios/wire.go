package scenarios

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/proof/conformance/internal/adapter"
	"github.com/natsid/natsid/proof/conformance/internal/rig"
	"github.com/natsid/natsid/proof/conformance/internal/vectors"
	layouts "github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

var onTheWire = law("The wire",
	both("contract", "the adapter has the methods of its profile, and no others", playContract),
	both("ids", "IDs of a real natsid arrive unrounded, each once", playIDs),
	both("tags", "a malformed tag is refused in the client, and nothing is sent", playTags),
	both("counts", "a count that is none is refused in the client, and nothing is sent", playCounts),
	both("replies", "a reply is natsid's and complete, or no call gets an ID of it", playReplies),
	both("errors", "an error is known by its header, whatever the body is", playErrors),
	full("ages", "an age above the bound is refused in the client, and nothing is sent", playAges),
	full("layouts", "a snowflake is split exactly", playLayouts),
	both("foreign-reply", "a reply of another program ends the calls, and is not asked for again", playForeign),
	full("half-answer", "half an answer gives no call of the request an ID", playHalf),
	both("answers-twice", "a second answer to a request is dropped", playTwice),
)

func playContract(s *Stage) {
	limit := long.Milliseconds()
	samples := []struct {
		method string
		params object
	}{
		{"next", object{"target": order, "timeoutMs": limit}}, // before connect
		{"connect", object{"servers": []string{s.NATS}, "namespace": s.NS}},
		{"next", object{"target": order, "timeoutMs": limit}},
		{"nextN", object{"target": order, "n": 2, "timeoutMs": limit}},
		{"burst", object{"target": order, "calls": 2, "timeoutMs": limit}},
		{"cancel", object{"request": 1}},
		{"stats", object{"target": order}},
		{"decode", object{"id": "1", "layout": "leaf"}},
		{"close", object{}},
		{"disconnect", object{"drain": false}},
		{"fly", object{}},
	}
	has := s.Contract.MethodsOf(s.Profile)
	for i, sample := range samples {
		o := s.begin(sample.method, sample.params, long).end()
		lacks := o.failure != nil && o.failure.Code == adapter.NoMethod
		s.want(lacks != slices.Contains(has, sample.method),
			"%v: want an answer, or code %d for a method that profile %s lacks", o, adapter.NoMethod, s.Profile)
		s.want(lacks || i == 0 || o.failure == nil, "%v", o)
		s.want(i > 0 || o.kind == "Closed", "before connect: %v, want Closed", o)
	}
}

func playIDs(s *Stage) {
	s.connect(object{"namespace": s.natsid()})
	target := tag(s.NS)
	s.create(subjects.TagCreate{Tag: s.NS, Start: 1<<53 - 100}) // above 2^53 a double rounds
	seen := map[subjects.ID]bool{}
	add := func(id subjects.ID) {
		s.want(!seen[id], "ID %d was given twice", id)
		seen[id] = true
	}
	for range 20 {
		add(s.mustNext(target))
		o := s.persist(func() outcome { return s.nextN(target, 100, long) })
		s.want(o.failure == nil, "%v", o)
		for _, run := range o.runs {
			for id := run[0]; id <= run[1]; id++ {
				add(id)
			}
		}
	}
	s.want(len(seen) == 20*101, "%d IDs, want %d", len(seen), 20*101)
	for range 20 {
		id := s.mustNext(snowflake)
		add(id)
		parts, err := layouts.Leaf.Decode(id)
		isNow := err == nil && time.Since(parts.Time).Abs() < time.Minute
		s.want(isNow, "the snowflake %d is of %v: rounded?", id, parts.Time)
	}
	o := s.next(tag("no.such.tag"), long)
	s.want(o.kind == "UnknownTag", "%v, want UnknownTag", o)
}

// cases returns the cases of a file of vectors.
func cases[C any](s *Stage, name string) []C {
	file, err := fs.ReadFile(s.Vectors, name)
	s.check(err)
	list, err := vectors.Read[C](file)
	s.check(err)
	return list
}

// refused ends the scenario unless the client itself has refused a call, with Go's text.
func (s *Stage) refused(c vectors.Case, o outcome, want *vectors.Refusal) {
	s.want(o.kind == "BadRequest", "%s: %v, want BadRequest: %s", c.Name, o, c.Why)
	if s.isFull() {
		s.want(o.failure.Data.Text == want.Text, "%s: the text is %q, want %q", c.Name, o.failure.Data.Text, want.Text)
	}
}

// here returns a subject of the namespace id in the scenario's.
func (s *Stage) here(subject string) string {
	return s.NS + strings.TrimPrefix(subject, string(subjects.DefaultNamespace))
}

// onlySent ends the scenario unless the desk has seen these requests and no others.
func (s *Stage) onlySent(want []string) {
	s.mustNext(tag("last")) // arrives after all others
	want = append(want, s.here("id.segment.last")+" ")
	var got []string
	for _, r := range s.Desk.Seen() {
		got = append(got, r.Subject+" "+r.Body)
	}
	s.want(slices.Equal(slices.Compact(got), want), "it has sent %q, want %q", got, want)
}

func playTags(s *Stage) {
	s.connect(nil)
	var sent []string
	for _, c := range cases[vectors.Tag](s, "tags.json") {
		if !s.isFull() && strings.Contains(c.Tag, "\x00") {
			continue // a text in C ends there, before the client sees it
		}
		o := s.next(tag(c.Tag), long)
		if c.Refusal != nil {
			s.refused(c.Case, o, c.Refusal)
			continue
		}
		s.want(o.failure == nil, "%s: %v: %s", c.Name, o, c.Why)
		sent = append(sent, s.here(c.Subject)+" ")
	}
	s.onlySent(sent)
}

func playCounts(s *Stage) {
	s.connect(nil)
	var sent []string
	for _, c := range cases[vectors.Count](s, "counts.json") {
		o := s.nextN(order, c.N, long)
		if c.Refusal != nil {
			s.refused(c.Case, o, c.Refusal)
			continue
		}
		s.want(o.failure == nil, "%s: %v: %s", c.Name, o, c.Why)
		sent = append(sent, s.here("id.segment.order")+" "+*c.Body)
	}
	s.onlySent(sent)
}

func playReplies(s *Stage) {
	s.connect(nil)
	for i, c := range cases[vectors.Reply](s, "replies.json") {
		s.Desk.Say(seldom(c.Text()))
		o := s.nextN(tag(fmt.Sprint("t", i)), c.N, 3*long)
		if len(c.Runs) == 0 {
			s.want(o.kind == "NotNatsid", "%s: %v, want NotNatsid: %s", c.Name, o, c.Why)
			continue
		}
		var want [][2]subjects.ID
		for _, run := range c.Runs {
			want = append(want, [2]subjects.ID{number(run[0]), number(run[1])})
		}
		s.want(slices.Equal(o.runs, want), "%s: %v, want %v: %s", c.Name, o, want, c.Why)
	}
}

// seldom returns a policy that answers with a body, and copies of the request only every few seconds: on a busy
// machine, 10 MB for each would delay the first, and a client that finds its connection dead meanwhile needs another.
func seldom(body string) rig.Policy {
	var last time.Time // the desk calls one policy at a time
	return func(r *rig.Request) {
		if r.At.Sub(last) > 3*time.Second {
			last = r.At
			r.Answer(body)
		}
	}
}

func playErrors(s *Stage) {
	s.connect(nil)
	for i, c := range cases[vectors.Failure](s, "errors.json") {
		s.Desk.Say(func(r *rig.Request) { r.Reply(c.Headers, c.Body) })
		target := order
		if s.isFull() { // a handle of its own: a pause that one reply demands holds no other case
			target = with(order, "maxBatch", client.DefaultMaxBatch+i)
		}
		o := s.answered(target, c.Again && s.isFull())
		kind := o.kind
		if s.isFull() && c.Again {
			s.want(kind == "Deadline", "%s: %v, want it to ask again until its time is up: %s", c.Name, o, c.Why)
			kind = o.reason
		}
		s.want(kind == c.Kind, "%s: %v, want the kind %q: %s", c.Name, o, c.Kind, c.Why)
		if o.failure != nil && (!c.Again || !s.isFull()) {
			d := o.failure.Data
			s.want(d.Code == c.Code && d.Text == c.Text, "%s: code %d and text %q, want %d and %q",
				c.Name, d.Code, d.Text, c.Code, c.Text)
		}
	}
}

// answered makes a call that gets an answer before its time is up. The time is short at first if the client asks again
// until then.
func (s *Stage) answered(target object, again bool) (o outcome) {
	if !again {
		return s.next(target, long)
	}
	for limit := 200 * time.Millisecond; limit < long; limit *= 4 {
		if o = s.next(target, limit); o.kind != "Deadline" || o.reason != "" {
			return o
		}
	}
	return o
}

func playAges(s *Stage) {
	s.connect(nil)
	good := map[string]vectors.Age{} // by the kind of their requests
	for i, c := range cases[vectors.Age](s, "ages.json") {
		name := fmt.Sprint("t", i)
		o := s.next(prefetch(tag(name), c.N, time.Duration(c.MaxAgeMs)*time.Millisecond), long)
		if c.Refusal != nil {
			s.refused(c.Case, o, c.Refusal)
			continue
		}
		s.want(o.failure == nil, "%s: %v: %s", c.Name, o, c.Why)
		good["segment."+name] = c
	}
	s.mustNext(tag("last")) // arrives after all others
	for _, r := range s.Desk.Seen() {
		c, ok := good[r.Kind()]
		s.want(ok || r.Kind() == "segment.last", "%v was sent", r)
		got := r.Header.Get(subjects.HeaderPrefetch)
		age, _ := time.ParseDuration(got)
		want, _ := time.ParseDuration(c.Header)
		s.want(age == want, "%s: the header %s is %q, want %q", c.Name, subjects.HeaderPrefetch, got, c.Header)
		s.want(!ok || r.N == c.N, "%s: %v, want a range of %d", c.Name, r, c.N)
	}
}

func playLayouts(s *Stage) {
	for _, c := range cases[vectors.Layout](s, "layouts.json") {
		o := s.begin("decode", object{"id": c.ID, "layout": c.Layout}, 0).end()
		if c.Error != "" {
			s.want(o.kind == "BadRequest", "%s: %v, want BadRequest: %s", c.Name, o, c.Why)
			continue
		}
		want, err := json.Marshal(c.Parts)
		s.check(err)
		var got any
		_ = json.Unmarshal(o.raw, &got) // the contract has allowed it
		sorted, _ := json.Marshal(got)
		s.want(string(sorted) == string(want), "%s: %v, want %s: %s", c.Name, o, want, c.Why)
	}
}

func playForeign(s *Stage) {
	s.connect(nil)
	s.Desk.Say(func(r *rig.Request) { r.Answer(`{"stream":"ORDERS","seq":7}`) })
	o := s.next(order, short)
	s.want(o.kind == "NotNatsid", "%v, want NotNatsid", o)
	if s.isFull() {
		o = s.beginBurst(order, 20, short).end()
		s.want(o.kinds["NotNatsid"] == 20, "%v, want NotNatsid for each of 20 calls", o)
	}
	s.quiet()
	s.Desk.Say(rig.Issue)
	s.mustNext(order)
}

// quiet waits for longer than the pause before a further copy, and ends the scenario if requests arrive in that time.
// One may have been on its way.
func (s *Stage) quiet() {
	before := len(s.Desk.Seen())
	time.Sleep(700 * time.Millisecond)
	after := s.Desk.Seen()
	s.want(len(after) <= before+1, "%v was sent, though that cannot help", after[len(after)-1])
}

// Calls that begin while a request is under way share the next one.
func playHalf(s *Stage) {
	s.connect(nil)
	s.Desk.Say(func(r *rig.Request) {
		if r.N > 1 {
			r.IssueOnly(r.N - 1)
			return
		}
		time.AfterFunc(30*time.Millisecond, r.Issue)
	})
	o := s.beginBurst(order, 100, long).end()
	s.want(o.kinds["NotNatsid"]+len(o.ids) == 100, "%v, want an ID or NotNatsid for each call", o)
	s.want(o.kinds["NotNatsid"] > 1, "%v: no two calls shared a request", o)
	s.distinct(o.ids...)
	for _, id := range o.ids {
		s.want(s.Desk.Origin(id).N == 1, "ID %d was given, of half an answer", id)
	}
}

func playTwice(s *Stage) {
	s.connect(nil)
	var before *rig.Request
	s.Desk.Say(func(r *rig.Request) {
		if before != nil {
			before.Issue() // while its successor is under way
		}
		before = r
		r.Issue()
	})
	for range 30 {
		o := s.next(order, long)
		s.want(o.failure == nil, "%v", o)
		s.distinct(o.id())
		s.want(!s.Desk.Origin(o.id()).At.Before(o.began), "ID %d is from an answer to an earlier request", o.id())
	}
}
