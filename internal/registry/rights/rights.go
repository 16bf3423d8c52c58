// Package rights says what the users of natsid may publish and subscribe to; it is internal to natsid and may change.
//
// Each subject comes from the function that the code using the subject calls: in [subjects.Namespace], [buckets.API]
// or package wire. End-to-end tests run natsid with exactly these rights, and again with each of them taken away.
package rights

import (
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/subjects"
)

// A Role is what a user of NATS does with natsid: serve requests, send them, or administer. Each role needs other
// rights.
type Role string

// The roles.
const (
	Worker   Role = "worker"   // runs natsid serve
	Caller   Role = "caller"   // requests IDs
	Operator Role = "operator" // runs the other commands, and hears alarms
	Stage    Role = "stage"    // runs natsid stamp
	Holder   Role = "holder"   // draws its own snowflakes: package number, natsid number
)

// Roles returns all roles.
func Roles() []Role { return []Role{Worker, Caller, Operator, Stage, Holder} }

// A Right is the right to publish or to subscribe to the subjects that match a pattern.
type Right struct {
	Subject string `json:"subject"`
	Queue   string `json:"queue,omitempty"` // queue group of a subscription; "" permits every group, and none
	Why     string `json:"why"`             // a clause without a capital at the start or a period at the end

	modes string // the modes of requests that a worker cannot serve without this right, separated by spaces
}

// String returns the right in the form that nats-server's permissions have: a subject, perhaps a queue group.
func (r Right) String() string {
	if r.Queue == "" {
		return r.Subject
	}
	return r.Subject + " " + r.Queue
}

// answers begins the Why of each right to answer requests. nats-server's `allow_responses` can replace such rights.
const answers = "answer requests"

// isAnswer reports whether this is a right to answer requests.
func (r Right) isAnswer() bool { return strings.HasPrefix(r.Why, answers) }

// Rights are all rights of a user. Everything that they do not name is denied.
type Rights struct {
	Publish   []Right `json:"publish"`
	Subscribe []Right `json:"subscribe"`
}

// A Deployment has the settings of natsid on which rights depend. Namespace is required; the zero value of each other
// field is its default.
type Deployment struct {
	Namespace   subjects.Namespace
	InboxPrefix string // of the inboxes on which the user hears answers, without the last dot; "" is _INBOX
	// ReplyTo has the inbox prefixes of those whose requests a worker answers, except prefixes below _INBOX.
	ReplyTo  []string
	JSDomain string // the user's JetStream domain; JSPrefix is its API prefix
	JSPrefix string
	NoGrants bool // workers do not write down which IDs they may issue
	// MakesBuckets gives workers the rights to make the buckets.
	MakesBuckets bool
	// Repairs adds the right to write the marks, the next IDs of tags, on which uniqueness rests. Operators need it
	// only for `natsid resume` and `natsid store move`.
	Repairs bool
	Stamps  Pipeline // what a user of the role Stage reads and writes
}

// A Pipeline is what `natsid stamp`, called a stage, reads and writes: see its flags.
type Pipeline struct {
	From, To   string // names of streams
	Into       string // the subject to which stamped copies go
	DeadLetter string // a subject; "" for none
	Creates    bool   // the stage makes the stream To
}

// Of returns the rights that a role needs, and no others.
func Of(role Role, d Deployment) Rights {
	t := table{d: d, ns: d.Namespace, api: buckets.APIOf(d.JSDomain, d.JSPrefix)}
	switch role {
	case Worker:
		t.worker()
	case Caller:
		t.caller()
	case Operator:
		t.operator()
	case Stage:
		t.stage()
	case Holder:
		t.holder()
	}
	return t.Rights
}

// defaultInbox is the subject below which NATS clients await replies by default. The variable has no dot at the end.
var defaultInbox = strings.TrimSuffix(nats.InboxPrefix, ".")

// serviceReplies matches the subjects on which nats-server awaits replies for callers of other accounts.
const serviceReplies = "_R_.>"

// A table collects the rights of one role.
type table struct {
	Rights
	d     Deployment
	ns    subjects.Namespace
	api   buckets.API
	modes string // modes of requests that need the rights added next
}

// Modes of requests, as a worker names them. A worker serves a mode only if it has the rights for that.
const (
	tags      = "segment tags" // both modes need the marks, the next IDs of tags
	snowflake = "snowflake"
	relay     = "relay"
	all       = tags + " " + snowflake
)

// needed calls f. Without the rights that f adds, a worker serves no requests of the given modes.
func (t *table) needed(modes string, f func()) {
	t.modes = modes
	f()
	t.modes = ""
}

func (t *table) publish(why string, on ...string) {
	for _, s := range on {
		t.Publish = append(t.Publish, Right{Subject: s, Why: why, modes: t.modes})
	}
}

func (t *table) subscribe(queue, why string, on ...string) {
	for _, s := range on {
		t.Subscribe = append(t.Subscribe, Right{Subject: s, Queue: queue, Why: why, modes: t.modes})
	}
}

// replies adds the right to hear the answers to the user's requests.
func (t *table) replies() {
	t.subscribe("", "hear answers", inbox(t.d.InboxPrefix))
}

// inbox returns the pattern that matches all inboxes of a prefix; "" stands for NATS's default.
func inbox(prefix string) string {
	if prefix == "" {
		prefix = defaultInbox
	}
	return strings.TrimSuffix(prefix, ".") + ".>"
}

// worker adds the rights of a user who runs natsid serve.
func (t *table) worker() {
	ns := t.ns
	t.publish("learn what it may do", UserInfo)
	serve := func(mode string, on ...string) {
		t.needed(mode, func() { t.subscribe(wire.QueueGroup, "serve requests", on...) })
	}
	serve("segment", wire.Segments(ns))
	serve(snowflake, ns.Snowflake(), wire.Snowflakes(ns))
	serve("tags", ns.TagCreate(), ns.TagUpdate(), ns.TagDelete(), ns.TagList(), wire.ThrottleSubject(ns))
	own := inbox(t.d.InboxPrefix)
	t.needed(all, func() { t.publish(answers, own) })
	t.publish(answers, t.inboxes()[1:]...)
	t.publish(answers+" of other accounts, which import natsid", serviceReplies)
	t.needed(all, t.replies)
	const relays = "relay requests to workers that can load, and take them"
	t.publish(relays, wire.Relays(ns))
	t.needed(relay, func() { t.subscribe(wire.QueueGroup, relays, wire.Relays(ns)) })
	t.needed(snowflake, t.number)
	t.publish("share rates", wire.ServicePing(ns))
	const loaders = "load strict tags for other workers, and let them"
	t.publish(loaders, wire.Loader(ns, ">"))
	t.subscribe(wire.QueueGroup, loaders, wire.Loader(ns, ">"))
	t.publish("announce a changed tag", wire.TagChanged(ns))
	t.subscribe("", "hear of a changed tag", wire.TagChanged(ns))
	const registry = "compare the registry with other workers"
	t.publish(registry, wire.Registries(ns))
	t.subscribe("", registry, wire.Registries(ns))
	t.publish("raise alarms", wire.AlarmSubjects(ns))
	t.subscribe("", "say how it is, to other workers and `nats micro`", "$SRV.>")
	for _, b := range t.buckets() {
		t.needed(b.serve, func() { t.use(b) })
		if t.d.MakesBuckets {
			t.publish("make the bucket with "+b.holds, t.api.Create(b.name))
		}
	}
	if !t.d.NoGrants {
		t.writeGrants()
	}
}

// inboxes returns the patterns of the user's own inboxes, first, and of the inboxes to which it sends answers.
func (t *table) inboxes() []string {
	all := []string{inbox(t.d.InboxPrefix)}
	for _, prefix := range append([]string{defaultInbox}, t.d.ReplyTo...) {
		isBelow := prefix != defaultInbox && strings.HasPrefix(prefix, nats.InboxPrefix)
		if p := inbox(prefix); !isBelow && !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// number adds the rights to say which worker number the user holds, and to ask who holds a number.
func (t *table) number() {
	const number = "say who holds a worker number, and ask for it"
	t.publish(number, wire.Workers(t.ns))
	t.subscribe("", number, wire.Workers(t.ns))
}

// holder adds the rights of a user whose program draws its own snowflakes.
func (t *table) holder() {
	t.publish("learn what it may do", UserInfo)
	t.publish(answers, t.inboxes()...)
	t.replies()
	t.number()
	t.publish("ask whether the registry is stopped", wire.RegistryAsk(t.ns))
	for _, b := range t.buckets()[1:] {
		t.use(b)
	}
}

// use adds the rights to describe, list, read and write a bucket.
func (t *table) use(b bucket) {
	t.look(b.name, b.holds)
	t.publish("write "+b.holds, t.api.Write(b.name, ">"))
	if b.lasts {
		t.publish("read "+b.holds, t.api.Get(b.name))
	}
}

// writeGrants adds the right to write grants, records of the IDs that a worker was given to issue.
func (t *table) writeGrants() {
	b := wire.GrantsBucket(t.ns)
	const write = "write down what was granted"
	t.publish(write, t.api.Info(b), t.api.Write(b, ">"))
	if t.d.MakesBuckets {
		t.publish("make the bucket with the grants", t.api.Create(b))
	}
}

// readGrants adds the right to read grants, the records of the IDs that workers were given to issue.
func (t *table) readGrants() {
	b := wire.GrantsBucket(t.ns)
	const read = "read what was granted"
	t.publish(read, t.api.Info(b), t.api.Get(b), t.api.List(b, "*", ">"), t.api.Next(b, "*"))
}

// caller adds the rights of a user who requests IDs.
func (t *table) caller() {
	t.publish("request IDs of tags", wire.Segments(t.ns))
	t.publish("request snowflakes", t.ns.Snowflake(), wire.Snowflakes(t.ns))
	t.replies()
}

// stage adds the rights of a user who runs natsid stamp.
func (t *table) stage() {
	t.caller()
	p := t.d.Stamps
	t.publish("write copies", p.Into)
	t.publish("be shown on the page of the workers", wire.Stage(t.ns))
	read := "read " + p.From
	t.publish(read, t.api.Stream("STREAM.INFO", p.From), t.api.Stream("STREAM.MSG.GET", p.From),
		t.api.Stream("CONSUMER.CREATE", p.From)+".>", t.api.Stream("CONSUMER.MSG.NEXT", p.From)+".*")
	t.publish("end reading", t.api.Stream("CONSUMER.DELETE", p.From)+".*")
	t.publish("find the position", t.api.Stream("STREAM.INFO", p.To), t.api.Stream("STREAM.MSG.GET", p.To))
	if p.Creates {
		t.publish("make "+p.To, t.api.Stream("STREAM.CREATE", p.To), t.api.Stream("STREAM.UPDATE", p.To))
	}
	if p.DeadLetter != "" {
		t.publish("keep dead letters", t.api.Names(), p.DeadLetter)
	} else if p.Creates {
		t.publish("name the stream in the way of "+p.To, t.api.Names())
	}
	const hint = "keep a hint of the position"
	hints := wire.StampBucket(t.ns)
	t.publish(hint, t.api.Info(hints), t.api.Direct(hints, p.To), t.api.Write(hints, p.To))
	if t.d.MakesBuckets {
		t.publish("make the bucket with hints", t.api.Account(), t.api.Create(hints))
	}
}

// operator adds the rights of a user who runs the other commands.
func (t *table) operator() {
	ns := t.ns
	t.publish("change and list tags", ns.TagCreate(), ns.TagUpdate(), ns.TagDelete(), ns.TagList())
	t.publish("throttle tags", wire.ThrottleSubject(ns))
	t.publish("ask workers how they are", wire.View(ns))
	t.publish("choose a registry", wire.RegistryAsk(ns), wire.RegistryOf(ns, "*"))
	t.replies()
	t.subscribe("", "hear alarms", wire.AlarmSubjects(ns))
	for _, b := range t.buckets() {
		t.look(b.name, b.holds)
		if b.name == wire.SegmentBucket(ns) {
			t.publish("read "+b.holds, t.api.Get(b.name))
		}
	}
	t.readGrants()
	if !t.d.Repairs {
		return
	}
	t.publish("repair the marks", t.api.Write(wire.SegmentBucket(ns), ">"))
	t.publish("say which numbers are for programs", t.api.Get(wire.HistoryBucket(ns)),
		t.api.Write(wire.HistoryBucket(ns), "deployment"))
	if !t.d.NoGrants {
		t.publish("write down what was repaired", t.api.Write(wire.GrantsBucket(ns), ">"))
	}
	t.publish("say that the registry is stopped or resumed", wire.RegistryAnnounce(ns))
}

// A bucket is one of natsid's KV buckets: of tags, or of worker numbers.
type bucket struct {
	name  string
	holds string
	lasts bool   // the bucket keeps its entries for ever
	serve string // the modes of requests that need it
}

func (t *table) buckets() []bucket {
	return []bucket{
		{wire.SegmentBucket(t.ns), "the marks", true, tags},
		{wire.HistoryBucket(t.ns), "the records of worker numbers", true, snowflake},
		{wire.WorkerBucket(t.ns), "the heartbeats", false, snowflake},
	}
}

// look adds the rights to describe a bucket and to list its entries.
func (t *table) look(bucket, holds string) {
	list := "list " + holds
	t.publish("describe the bucket with "+holds, t.api.Info(bucket))
	t.publish(list, t.api.List(bucket, "*", ">"), t.api.Next(bucket, "*"))
}

// Texts returns rights in the form that nats-server's permissions have: see [Right.String].
func Texts(rights []Right) []string {
	all := make([]string, 0, len(rights))
	for _, r := range rights {
		all = append(all, r.String())
	}
	return slices.Compact(all)
}
