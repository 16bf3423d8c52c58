package worker

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A rights tracks asynchronous permission errors of the serving connection: the server
// sends them beside the replies, at a subscription or later, when the rights of the
// user were changed. It takes the errors about claimed subjects; the rest go to the
// previous handler. It is safe for concurrent use.
type rights struct {
	conn *nats.Conn
	next nats.ErrHandler // may be nil

	mu      sync.Mutex
	handled error             // the last refusal that reached the handler
	awaited error             // the last one that arrived, until it is handled
	late    time.Time         // when awaited is waited for no longer
	claimed map[string]bool   // subjects whose refusal is this worker's to say
	subs    map[string]string // subjects of refused subscriptions, with the server's words
	pubs    map[string]bool   // claimed subjects on which publishing was refused
	// refusals has room for one word that anything was refused.
	refusals chan struct{}
}

// watchRights begins to track the permission errors of conn.
func watchRights(conn *nats.Conn) *rights {
	r := &rights{
		conn: conn, next: conn.ErrorHandler(), handled: conn.LastError(),
		claimed: map[string]bool{}, subs: map[string]string{}, pubs: map[string]bool{},
		refusals: make(chan struct{}, 1),
	}
	conn.SetErrorHandler(r.handle)
	return r
}

var (
	subscribing = regexp.MustCompile(`Subscription to "([^"\s]+)"`)
	publishing  = regexp.MustCompile(`Publish to "([^"\s]+)"`)
)

// refusedBy returns the subject whose subscription, or on which a publish, is
// refused by err.
func refusedBy(err error) (sub, pub string) {
	if errors.Is(err, nats.ErrPermissionViolation) {
		if m := subscribing.FindStringSubmatch(err.Error()); m != nil {
			return m[1], ""
		}
		if m := publishing.FindStringSubmatch(err.Error()); m != nil {
			return "", m[1]
		}
	}
	return "", ""
}

// handle is the error handler of the connection.
func (r *rights) handle(nc *nats.Conn, on *nats.Subscription, err error) {
	if !r.note(err) && r.next != nil {
		r.next(nc, on, err)
	}
}

// note notes a refusal, and reports whether it is this worker's to say.
func (r *rights) note(err error) (ours bool) {
	sub, pub := refusedBy(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if errors.Is(err, nats.ErrPermissionViolation) {
		r.handled = err
	}
	if err == r.awaited {
		r.awaited = nil
	}
	if sub+pub == "" {
		return false
	}
	signal(r.refusals)
	if ours = r.claimed[sub+pub]; sub != "" {
		r.subs[sub] = err.Error()
	} else if ours {
		r.pubs[pub] = true
	}
	return ours
}

// claim makes refusals about a subject this worker's to say, and forgets those of
// before: call it before each attempt.
func (r *rights) claim(subject string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claimed[subject] = true
	delete(r.subs, subject)
	delete(r.pubs, subject)
}

// disclaim forgets all about a subject.
func (r *rights) disclaim(subject string) {
	r.claim(subject)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.claimed, subject)
}

// subscription returns the server's words with which it refused a subscription,
// "" if it did not.
func (r *rights) subscription(subject string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.subs[subject]
}

// mayPublish reports whether publishing on a claimed subject has not been refused.
func (r *rights) mayPublish(subject string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.pubs[subject]
}

// pinged is to be called when the server has answered a ping: all that it refused
// before has arrived by then, but the NATS client hands it to another goroutine.
func (r *rights) pinged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.conn.LastError()
	if errors.Is(last, nats.ErrPermissionViolation) && last != r.handled {
		r.awaited, r.late = last, time.Now().Add(slowPing)
	}
}

// areKnown reports whether all that was refused before the last ping is noted.
func (r *rights) areKnown() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.awaited == nil || time.Now().After(r.late)
}

// flush returns nil once all that was refused so far is noted.
func (r *rights) flush() error {
	if err := r.conn.FlushTimeout(slowPing); err != nil {
		return err
	}
	for r.pinged(); !r.areKnown(); {
		time.Sleep(time.Millisecond)
	}
	return nil
}

// errSubscription returns the error for operators about a subscription that the server refused.
func errSubscription(subject, group string) error {
	what, right := subject, anyToken(subject)
	if group != "" {
		what += " with queue " + group
		right += " " + group
	}
	return fmt.Errorf("the NATS server refuses the subscription to %s: "+
		"give this worker's user the right to subscribe to `%s`", what, right)
}

// anyToken returns the right that covers the subject of one worker.
func anyToken(subject string) string {
	const of = ".worker."
	if at := strings.LastIndex(subject, of); at >= 0 {
		return subject[:at] + of + "*"
	}
	return subject
}
