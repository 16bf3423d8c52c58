package witness

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/jitter"
)

const (
	tick = time.Second // between looks at what is due
	// settling is how long an incident stays open at least, so that every worker that hears of it can take part.
	settling = time.Second
	// patience is how long a witness may take to answer before an operator is called.
	patience = 10 * time.Second
	// fleet is how many workers look at all witnesses once a poll, each. A look reads all, so those of a larger fleet
	// look more seldom, together as often: in an incident each says what it saw. Up to mostSeldom polls pass then.
	fleet      = 50
	mostSeldom = 20
)

// Run checks the bucket at the start, when it is suspected, and after each reconnect; it announces revisions, and
// repairs the marks after the bucket went back, until ctx ends. Call it once.
func (w *Witness) Run(ctx context.Context) {
	ticks := time.NewTicker(tick)
	defer ticks.Stop()
	err := w.checkNow(ctx, slog.LevelWarn)
	if w.cfg.Begun != nil {
		w.cfg.Begun(err)
	}
	next := time.Now().Add(w.look(ctx, true))
	for {
		suspected := false
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			w.checkAhead(ctx)
			suspected = w.isDue()
		case <-ticks.C:
			suspected = w.isOther()
			w.announceIfNew()
			w.noteAgain()
		}
		if suspected {
			_ = w.checkNow(ctx, slog.LevelDebug) // a load or poll that fails for it is logged
		}
		if !time.Now().Before(next) && !w.isHeld() {
			next = time.Now().Add(w.look(ctx, false))
		}
		if w.isHeld() {
			w.repair(ctx)
		}
	}
}

func (w *Witness) isHeld() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held
}

// isOther reports whether the bucket is not the one that the journal names; its operator may confirm it at any time.
func (w *Witness) isOther() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.other && !w.held
}

// isDue reports whether a check is due that no load has made.
func (w *Witness) isDue() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.held && w.checked.IsZero()
}

// checkNow checks the bucket. If that fails, which is logged, the next load checks again.
func (w *Witness) checkNow(ctx context.Context, level slog.Level) error {
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Enough(checkRequests, checkTimeout))
	defer cancel()
	err := w.Ready(ctx)
	if err != nil && ctx.Err() == nil {
		w.cfg.Log.Log(ctx, level, "the bucket of marks could not be checked; the next load checks it again",
			"error", err)
	}
	return err
}

// checkAhead checks the bucket if loads are made, and what they rest on ages. They do not wait for it, unless it is
// still under way when that has expired: so it ends then.
//
// Law: a load needs a check of the last 3 s, whoever made it.
func (w *Witness) checkAhead(ctx context.Context) {
	w.mu.Lock()
	ahead := w.ahead
	w.ahead = false
	w.mu.Unlock()
	if !ahead || w.isHeld() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, fresh-ageing)
	defer cancel()
	if w.enter(ctx) != nil {
		return
	}
	defer w.leave()
	if err := w.check(ctx); err != nil && ctx.Err() == nil {
		w.cfg.Log.Debug("the bucket of marks could not be checked ahead; a load checks it again", "error", err)
	}
}

// look reads all witnesses, to remember which there are, and returns how long until the next look. One that is older
// than it was when last seen shows that the bucket went back, if it is still the older one after this worker has read
// the bucket's identity, and written. A bucket that lost its identity, as by a maximum age, lost the witnesses too.
//
// A look ends with a check, and so a write. Law: an idle worker that is killed knows of a set-back to before its last
// look, though it loaded nothing since: it may be the first to start.
//
// The first look takes what the greeting listed, a moment before: where hundreds start at once, each listing costs the
// square of the fleet. It was read after this worker's own write, so it hides no more than a listing now would.
func (w *Witness) look(ctx context.Context, first bool) (pause time.Duration) {
	if w.enter(ctx) != nil {
		return w.cfg.Poll
	}
	defer w.leave()
	listed := w.listed
	w.listed = nil
	if w.isHeld() || !w.sound {
		return w.cfg.Poll // the bucket may have gone back: its witnesses are not those to remember
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Enough(checkRequests, checkTimeout))
	defer cancel()
	var older []string
	var err error
	switch {
	case first && listed != nil:
		older = w.compare(listed, time.Time{})
	case w.repaired:
		err = w.lookAnew(ctx)
	default:
		older, err = w.lookAtAll(ctx)
	}
	if err == nil && len(older) > 0 {
		err = w.lookAgain(ctx)
	} else if ready, _ := w.isReady(); err == nil && !ready {
		err = w.check(ctx)
	}
	if err != nil && ctx.Err() == nil {
		w.cfg.Log.Debug("the witnesses cannot be listed; the next poll lists them again", "error", err)
	}
	pause = w.cfg.Poll * time.Duration(min(max(1, len(w.known)/fleet), mostSeldom))
	return pause*3/4 + jitter.UpTo(pause/4)
}

// lookAgain is the second look, at witnesses that were older at the first.
func (w *Witness) lookAgain(ctx context.Context) error {
	there, err := w.settle(ctx, true)
	if err != nil || !there {
		return err
	}
	if err := w.check(ctx); err != nil {
		return err
	}
	older, err := w.lookAtAll(ctx)
	if err == nil && len(older) > 0 {
		w.WentBack("the witness of worker " + w.known[older[0]].Name + " is older than it was a moment ago")
	}
	return err
}

// forgetOthers forgets which witnesses there were: those of a bucket that is gone.
func (w *Witness) forgetOthers() {
	clear(w.known)
	clear(w.seen)
	w.repaired = false
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.met)
}

// lookAnew is the first look after a repair in which this worker took part. The repair covers all that had been loaded,
// so the witnesses that there are now count, if a write shows that they are not those of another set-back.
//
// Law: until then those of before count. The bucket may be restored once more, and with it goes what the repair raised.
func (w *Witness) lookAnew(ctx context.Context) error {
	began := time.Now()
	all, err := w.witnesses(ctx)
	if err == nil {
		err = w.check(ctx)
	}
	if err != nil {
		return err
	}
	clear(w.known)
	w.repaired = false
	w.compare(all, began)
	return nil
}

// lookAtAll notes all witnesses that are as new as they were when last seen, and returns those that are not.
func (w *Witness) lookAtAll(ctx context.Context) (older []string, err error) {
	began := time.Now()
	all, err := w.witnesses(ctx)
	if err != nil {
		return nil, err
	}
	return w.compare(all, began), nil
}

// compare is lookAtAll with what was listed, since a time.
func (w *Witness) compare(all map[string]record, began time.Time) (older []string) {
	w.shown(all, began)
	for _, id := range slices.Sorted(maps.Keys(all)) {
		if r := all[id]; r.Counter >= w.known[id].Counter {
			w.known[id], w.seen[id] = r, true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.known)) {
		if all[id].Counter < w.known[id].Counter {
			older = append(older, id)
		}
	}
	return older
}

// shown forgets whom this worker had met, of those that are listed as live, or have stopped since they were last seen.
func (w *Witness) shown(all map[string]record, began time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, at := range w.met {
		r, listed := all[id]
		if listed && at.Before(began) && (!r.Ended || r.Counter > w.known[id].Counter) {
			delete(w.met, id)
		}
	}
}

// A message is what workers announce to one another. Only workers may publish it.
type message struct {
	Version  int    `json:"version"`
	Registry string `json:"registry,omitempty"`
	Witness  string `json:"witness"`            // of the sender
	Revision uint64 `json:"revision,string"`    // the highest that the sender knows
	Era      string `json:"era,omitempty"`      // the last incident that the sender knows of
	Incident string `json:"incident,omitempty"` // that is open
	// Back says, in a reply, that the sender knows that the bucket went back, and of no incident yet.
	Back bool `json:"back,omitempty"`
}

// saysBack reports whether a reply is from a worker on this bucket that knows that it went back.
func (w *Witness) saysBack(reply []byte) bool {
	var m message
	if json.Unmarshal(reply, &m) != nil || m.Version != version || !m.Back {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return m.Registry != "" && m.Registry == w.registry
}

// Hear takes a message that a worker announced, this one included, and returns what to reply if the worker asks. It
// does not block.
//
// Law: whoever asks loads once the others have answered. So a worker that knows that the bucket went back names the
// incident, and until there is one it does not answer as a witness.
func (w *Witness) Hear(body []byte) (reply []byte) {
	w.take(body)
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.messageLocked()
	if w.held {
		if m.Incident = w.incident; m.Incident == "" {
			m.Witness, m.Back = "", true
		}
	}
	return encode(m)
}

// take takes a message or a reply, and returns the witness of its sender; "" if it is not from a worker on this bucket.
func (w *Witness) take(body []byte) (witness string) {
	var m message
	if json.Unmarshal(body, &m) != nil || m.Version != version {
		return ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.Registry == "" || m.Registry != w.registry {
		return ""
	}
	if m.Witness != "" && m.Witness != w.id {
		w.met[m.Witness] = time.Now()
	}
	if m.Incident != "" && m.Incident != w.closed && m.Incident != w.incident {
		w.incident = m.Incident
		w.holdLocked()
		w.signal()
	}
	if m.Era != w.era {
		w.doubtLocked() // one of both does not know the last incident: the bucket shows which
		return m.Witness
	}
	w.heard, w.highest = time.Now(), max(w.highest, m.Revision)
	w.cfg.Bucket.Saw(m.Revision)
	// Senders have just written or read. One that knows less than was known long before may be on a bucket that went
	// back; only a write shows it.
	if m.Revision < w.earlier {
		w.doubtLocked()
	}
	return m.Witness
}

// doubtLocked has the bucket checked now.
func (w *Witness) doubtLocked() {
	if !w.held {
		w.suspectLocked()
	}
}

// announceIfNew announces the highest revision that this worker knows, unless a worker has announced one in the last
// second: so the messages do not grow with the square of the workers.
func (w *Witness) announceIfNew() {
	w.mu.Lock()
	w.earlier = w.before
	w.before = w.cfg.Bucket.Known()
	due := w.registry != "" && w.cfg.Bucket.Known() > w.highest && time.Since(w.heard) >= tick
	w.mu.Unlock()
	if due {
		w.announce("")
	}
}

func (w *Witness) announce(incident string) {
	known := w.cfg.Bucket.Known()
	if err := w.cfg.Announce(w.message(incident)); err != nil {
		w.cfg.Log.Debug("a revision was not announced to the other workers", "error", err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard, w.highest = time.Now(), max(w.highest, known)
}

// message returns what this worker knows, for the others.
func (w *Witness) message(incident string) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.messageLocked()
	m.Incident = incident
	return encode(m)
}

func (w *Witness) messageLocked() message {
	return message{
		Version: version, Registry: w.registry, Witness: w.id, Revision: w.cfg.Bucket.Known(), Era: w.era,
	}
}

// lookLast looks at all witnesses if that is quick: what is not seen now is as it was seen before.
func (w *Witness) lookLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tick/2)
	defer cancel()
	if _, err := w.lookAtAll(ctx); err != nil {
		w.cfg.Log.Debug("the witnesses could not be listed before the stop", "error", err)
	}
}

// Stop ends the life of this worker, once no load can begin any more: its floors go to the data directory, and its
// witness says that it stopped cleanly. The witnesses of the others go to disk, too: one that is restored as it was
// before must answer, though it says that its worker had stopped.
func (w *Witness) Stop(ctx context.Context) error {
	if err := w.enter(ctx); err != nil {
		return err
	}
	defer w.leave()
	if w.revision == 0 {
		return nil
	}
	w.lookLast(ctx)
	if !w.memory.Forgot() { // otherwise the life ends here, and what it loaded is not known
		w.floorsToDisk(ctx)
	}
	if w.isHeld() {
		return nil // the incident must not take the next life for one that has answered
	}
	if err := w.write(ctx, w.me.Answer, true); err != nil {
		return fmt.Errorf("the witness does not say that this worker stopped cleanly: %w", err)
	}
	return nil
}

// floorsToDisk leaves what this life has loaded, so that it continues with the next process.
func (w *Witness) floorsToDisk(ctx context.Context) {
	floors, known := w.memory.Floors(), maps.Clone(w.known)
	w.journal.Floors = newToken()
	ended := w.journal
	ended.Pending = slices.Clone(ended.Pending)
	w.lastToDisk(ctx, func() error { return ended.end(floors, known) })
}
