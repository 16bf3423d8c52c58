package lineage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/era"
)

// Fields say how a worker composes snowflakes. They are the same for all workers of a namespace.
type Fields struct {
	Layout string `json:"layout"`
	Epoch  int64  `json:"epoch"` // Unix ms
	Unit   int64  `json:"unit"`  // of a tick, ms
}

// A Notice is what a worker says about its registry, to all workers or in an answer to one. It crosses the wire as
// JSON. An incident is a stop of all workers of a registry, from a proof that its state is wrong until a resume.
type Notice struct {
	Registry string `json:"registry"`
	Era      string `json:"era"`
	Incident string `json:"incident,omitempty"` // the open incident
	Other    string `json:"other,omitempty"`    // a second registry, for which this one is stopped
	Throttle int64  `json:"throttle,omitempty"` // limit of each tag's rate: see [era.Identity]
	Revision uint64 `json:"revision,string"`    // the highest of the bucket that the worker knows
	Pinned   bool   `json:"pinned,omitempty"`   // an operator chose this registry
	Unused   bool   `json:"unused,omitempty"`   // it is stopped, and never loaded or had a worker number
	Fields
	Instance string `json:"instance"`
	Process  string `json:"process"` // random, one per process
	// Numbers is the ID of the deployment of the worker numbers beside this registry; "" before it is known.
	Numbers string `json:"numbers,omitempty"`
}

// maxNotice bounds the bytes of a notice, what a worker says about its registry, and maxName those of each name in it.
const (
	maxNotice = 4096
	maxName   = 128
)

// parseNotice reads a notice that anyone may have sent.
func parseNotice(data []byte) (n Notice, err error) {
	if len(data) > maxNotice {
		return Notice{}, fmt.Errorf("lineage: a notice of %d bytes, want at most %d", len(data), maxNotice)
	}
	if err := json.Unmarshal(data, &n); err != nil {
		return Notice{}, fmt.Errorf("lineage: a notice that cannot be read: %w", err)
	}
	return n, n.check()
}

func (n Notice) check() error {
	if n.Registry != "" && !IsID(n.Registry) || n.Other != "" && !IsID(n.Other) {
		return fmt.Errorf("lineage: %.40q is not the ID of a registry", n.Registry+n.Other)
	}
	longest := max(len(n.Process), len(n.Instance), len(n.Layout), len(n.Numbers))
	if n.Process == "" || longest > maxName {
		return fmt.Errorf("lineage: a notice without process, or with a name of more than %d bytes", maxName)
	}
	return nil
}

// IsID reports whether id can be the ID of a registry: text that can be one token of a subject.
func IsID(id string) bool {
	for _, c := range []byte(id) {
		if !('0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' || c == '-' || c == '_') {
			return false
		}
	}
	return id != "" && len(id) <= maxName
}

const (
	// announceAfter is how long no worker of a registry must have announced it before this worker does; a random time
	// up to announceSpread is added. So mostly one worker of a registry announces it.
	announceAfter  = 5 * time.Second
	announceSpread = 3 * time.Second
	// forgetAfter is how long after its last announcement a registry counts as one that serves the same subjects. That
	// allows for one lost announcement.
	forgetAfter = 2*(announceAfter+announceSpread) + time.Second
	// askTimeout bounds a question to another registry.
	askTimeout = 2 * time.Second
	// noticesTimeout bounds the wait for answers of all registries: how many will answer is not known.
	noticesTimeout = 400 * time.Millisecond
)

// A peers keeps what this worker has heard of other registries, and announces its own. It is safe for concurrent use.
//
// Invariant: a notice proves nothing; it is only a reason to check.
type peers struct {
	cfg      *Config
	registry *registry
	gate     *gate

	mu      sync.Mutex
	others  map[string]*other // by registry
	heard   time.Time         // when a worker of this registry last announced it
	speak   time.Time         // when this worker announces, unless another one does before
	highest uint64            // the highest revision that was announced in this era
}

// An other is another registry that was heard.
type other struct {
	Notice
	heard, asked time.Time
	unanswered   int // questions in a row
}

// Notice returns what this worker says about its registry. Its field Registry is "" before that is known.
//
// Law: a stopped worker announces revision 0. It may know already that the registry was resumed, while the highest
// revision that it knows is still that of the bucket before a restore.
func (p *peers) Notice() Notice {
	id := p.registry.Identity()
	known := p.cfg.Bucket.Known()
	if p.gate.Stopped() != nil {
		known = 0 //mutant:known
	}
	n := Notice{
		Registry: id.Registry, Era: id.Era, Incident: id.Open(), Throttle: id.Throttle, Revision: known,
		Pinned: p.cfg.Pin != "" && p.cfg.Pin == id.Registry, Fields: p.cfg.Fields, Instance: p.cfg.Name(),
		Process: p.cfg.Process,
	}
	if p.cfg.Numbers != nil {
		n.Numbers = p.cfg.Numbers()
	}
	if id.Incident != nil {
		n.Other, n.Unused = id.Incident.Other, id.Incident.Unused
	}
	return n
}

// Hear takes an announcement of a registry, which may come from anyone. It does not block.
func (p *peers) Hear(data []byte) {
	if n, err := parseNotice(data); err == nil {
		p.hear(n)
	}
}

func (p *peers) hear(n Notice) {
	own := p.registry.Identity()
	if n.Process == p.cfg.Process || own.Registry == "" {
		return
	}
	if n.Registry == "" { // an operator who found no identity: see Operator.rouse
		p.gate.Doubt()
		return
	}
	if n.Registry == own.Registry {
		if p.differs(own, n) {
			p.gate.Doubt()
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.others[n.Registry]
	if o == nil {
		o = &other{}
		p.others[n.Registry] = o
	}
	o.Notice, o.heard = n, p.cfg.Now()
	p.gate.signal()
}

// differs notes what another worker of this registry announced, and reports whether that is a reason to check.
func (p *peers) differs(own era.Identity, n Notice) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spoken()
	if n.Era != own.Era || n.Incident != own.Open() || n.Throttle != own.Throttle {
		return true
	}
	p.highest = max(p.highest, n.Revision)
	p.cfg.Bucket.Saw(n.Revision)
	return false
}

// spoken notes that a worker of this registry has announced it. The lock is held.
func (p *peers) spoken() {
	p.heard = p.cfg.Now()
	p.speak = p.heard.Add(announceAfter + jitter.UpTo(announceSpread))
}

// all asks one worker of each registry for its notice, what it says about the registry, and returns those that come at
// once.
func (p *peers) all(ctx context.Context) ([]Notice, error) {
	return AskFunc(p.cfg.Bus.Ask).Notices(ctx, p.Notice())
}

// ask asks one worker of a registry for its notice: what it says about the registry.
func (p *peers) ask(ctx context.Context, registry string) (Notice, error) {
	r, err := AskFunc(p.cfg.Bus.Ask).one(ctx, registry, call{Op: opNotice, From: p.Notice()})
	return r.Notice, err
}

// announce sends this worker's notice to all workers.
func (p *peers) announce() {
	n := p.Notice()
	if n.Registry == "" {
		return
	}
	if err := p.cfg.Bus.Announce(encode(n)); err != nil {
		p.cfg.Log.Debug("this worker could not announce its registry", "error", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.highest = max(p.highest, n.Revision)
	p.spoken()
}

// announceIfDue announces the registry every few seconds, and a new highest revision once a second, unless another
// worker of the registry has just done so. So messages grow with the number of workers, not with its square.
func (p *peers) announceIfDue() {
	now, n := p.cfg.Now(), p.Notice()
	p.mu.Lock()
	due := now.After(p.speak) || n.Revision > p.highest && now.Sub(p.heard) >= tick
	p.mu.Unlock()
	if due {
		p.announce()
	}
}

// due returns the last notices of other registries that are to be examined, and forgets those no longer heard.
func (p *peers) due() (due []Notice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.Now()
	maps.DeleteFunc(p.others, func(_ string, o *other) bool { return now.Sub(o.heard) > forgetAfter })
	for _, o := range p.others {
		if o.asked.Before(o.heard) && now.Sub(o.asked) >= tick {
			o.asked = now
			due = append(due, o.Notice)
		}
	}
	return due
}

// asked records the outcome of a question to another registry, and returns how many in a row got no answer.
func (p *peers) asked(registry string, err error) (unanswered int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.others[registry]
	if o == nil {
		o = &other{} // the registry is no longer heard
	}
	if o.unanswered++; err == nil {
		o.unanswered = 0
	}
	return o.unanswered
}

// mostUnanswered: after so many questions without answer, a registry that announces itself counts as a second one.
const mostUnanswered = 3

// meet examines the other registries that were heard, and stops this registry if one of them may issue the same IDs.
func (c *checker) meet(ctx context.Context) {
	own := c.registry.Identity()
	for _, heard := range c.peers.due() {
		isChosen := c.cfg.Pin != "" && c.cfg.Pin == own.Registry && !heard.Pinned
		if isChosen || own.Incident != nil || isHarmless(own, heard) {
			continue
		}
		if err := c.meetOne(ctx, heard); err != nil && ctx.Err() == nil && !errors.Is(err, ErrStopped) {
			c.cfg.Log.Warn("another registry serves the same subjects, and cannot be examined yet", "registry",
				heard.Registry, "error", err)
		}
	}
}

// isHarmless reports whether the registry of a notice can repeat no ID of this one: the two are the same registry, or
// the other is stopped because of a second one, and either was never used or is merged into this one.
func isHarmless(own era.Identity, n Notice) bool {
	return n.Registry == own.Registry || n.Other != "" && (n.Unused || own.IsOf(n.Registry))
}

// meetOne asks a registry that was heard, and stops this registry if the other is there.
//
// Law: an announcement proves nothing, but an answer does: this worker reads its identity (which names the registry)
// before it asks, and the other worker before it answers. So the answer shows if both are of one registry. A registry
// that announces itself again and again, and never answers, counts as another one, since both may be serving.
func (c *checker) meetOne(ctx context.Context, heard Notice) error {
	if err := c.check(ctx, true); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	n, err := c.peers.ask(ctx, heard.Registry)
	unanswered := c.peers.asked(heard.Registry, err)
	if 0 < unanswered && unanswered < mostUnanswered {
		return err
	}
	if err != nil {
		n = heard
	}
	if isHarmless(c.last.id, n) {
		return nil
	}
	return c.conflict(ctx, n.Registry)
}

// conflict stops this registry because another one serves the same subjects.
func (c *checker) conflict(ctx context.Context, other string) error {
	unused, err := c.cfg.Unused(ctx)
	if err != nil {
		return err
	}
	v := c.last
	return c.prove(ctx, &v, second(other, unused))
}

func second(other string, unused bool) *finding {
	why := "both may give the same IDs"
	if unused {
		why = "this one was never used: connect its workers to the NATS of the other one"
	}
	return &finding{cause: era.Second, other: other, unused: unused, why: fmt.Sprintf(
		"registry %s serves the same subjects, and this worker rests on another one; %s", other, why)}
}

// givesWay returns the finding of a worker that remembers nothing, and whose bucket has no identity, the entry that
// says which registry it holds. If the bucket was never used and another registry answers, the bucket was made by
// mistake, as behind a leaf node: only this registry stops. Otherwise the finding is f.
//
// Law: a worker checks its registry before it answers. So a worker that answers with an identity uses another bucket
// than this worker does.
func (c *checker) givesWay(ctx context.Context, v *view, f *finding) error {
	if unused, err := c.cfg.Unused(ctx); !unused || err != nil || v.revision != 0 {
		return cmp.Or(err, error(f))
	}
	all, _ := c.peers.all(ctx) // after an error, no other registry counts as there
	serves := func(n Notice) bool { return n.Registry != "" && n.Incident == "" }
	if i := slices.IndexFunc(all, serves); i >= 0 {
		return second(all[i].Registry, true)
	}
	return f
}

// stopFor stops this registry, snowflakes included, as an operator has chosen another one to serve: keep.
func (c *checker) stopFor(ctx context.Context, keep string) error {
	if !IsID(keep) || keep == c.registry.Identity().Registry {
		return fmt.Errorf("%.40q cannot serve instead of this registry", keep)
	}
	err := c.check(ctx, false)
	switch in := c.registry.Identity().Incident; {
	case in != nil && in.Other != "":
		return nil
	case err != nil && !errors.Is(err, ErrStopped):
		return err
	}
	return c.conflict(ctx, keep)
}
