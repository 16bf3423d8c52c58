package worker

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/jitter"
)

// A verdict says whether the replies of a worker arrive, as far as it knows:
//
//	            +------------> proven <---+
//	            |                 |       |
//	undecided --+-> unproven <----+-------+
//	            |                 |       |
//	            +------------> refused <--+
type verdict int

const (
	undecided verdict = iota // not asked yet: no group joins
	proven                   // a reply arrived lately
	unproven                 // none arrives, and why is not known: served, but not ready
	refused                  // the server refuses them: every caller would wait in vain, so no group stands
)

// An echo shows that replies of this worker reach who asks. Again and again, over
// the connection [Config.Ask], it asks a subject that nobody else serves, and the
// serving connection answers. The answer has a secret of the moment in it, so the
// reply of a bystander or the acknowledgement of a stream proves nothing. No ID is
// involved, and the user needs no right beyond those that worker numbers need.
type echo struct {
	ask     *nats.Conn
	serve   *nats.Conn
	rights  *rights
	subject string

	mu      sync.Mutex
	secret  []byte // what the next answer holds
	verdict verdict
	why     error     // unless proven
	last    time.Time // of the last proof; the first question, before there is one
	misses  int       // questions without an answer since
}

const (
	// proofTimeout bounds one question.
	proofTimeout = 2 * time.Second
	// proofEvery is about how long a proof is good, while nothing speaks against
	// it: a fleet of 1000 asks 50 times a second.
	proofEvery = 20 * time.Second
	// proofAgain is about how often it is asked while there is no proof.
	proofAgain, proofAgainMax = 250 * time.Millisecond, 5 * time.Second
)

var (
	errUndecided      = errors.New("no reply was tried yet")
	errRepliesRefused = errors.New("the NATS server refuses this worker's replies: " +
		"give its user the right to publish on `_INBOX.>`, or `allow_responses`")
	errNotAsked = errors.New("this worker could not ask itself whether its replies arrive: " +
		"one of its connections to NATS does not answer")
	errNoReply = errors.New("this worker asked itself, and its reply did not arrive: " +
		"check the NATS servers that it is connected to, and the routes between them")
)

func errMayNotAsk(subject string) error {
	return fmt.Errorf("the NATS server does not let this worker ask itself whether its replies arrive: "+
		"give its user the right to publish on `%s`", anyToken(subject))
}

// newEcho returns an echo on the connection of l. It begins with the verdict of the connection before, if there was
// one: the end of a connection says nothing against the rights of the user, and [Config.Ask] may be lost, too.
func newEcho(l *link, r *rights, before *echo) *echo {
	e := &echo{
		ask: l.Ask, serve: l.conn, rights: r, why: errUndecided,
		subject: l.Namespace.Probe(strings.ToLower(rand.Text())),
	}
	if before != nil {
		before.mu.Lock()
		defer before.mu.Unlock()
		e.verdict, e.why, e.last, e.misses = before.verdict, before.why, before.last, before.misses
	}
	return e
}

// refusal returns why no group may stand, or nil.
func (e *echo) refusal() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.verdict == undecided || e.verdict == refused {
		return e.why
	}
	return nil
}

// trouble returns why the worker is not ready, or nil.
func (e *echo) trouble() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.why
}

// run asks until ctx ends.
func (e *echo) run(ctx context.Context, log *slog.Logger) {
	if e.last.IsZero() {
		e.last = time.Now()
	}
	pauses := jitter.NewBackoff(proofAgain, proofAgainMax)
	for ctx.Err() == nil {
		v, why := e.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if e.conclude(v, why) {
			e.say(log)
		}
		if v != proven {
			e.rest(ctx, pauses.NextBackOff(), nil)
			continue
		}
		pauses.Reset()
		e.rest(ctx, proofEvery*3/4+jitter.UpTo(proofEvery/2), e.rights.refusals)
	}
}

// say logs the verdict. Only the goroutine of run changes it.
func (e *echo) say(log *slog.Logger) {
	switch e.verdict {
	case proven:
		log.Info("replies of this worker arrive")
	case refused:
		log.Error("this worker serves nothing", "reason", e.why)
	default:
		log.Warn("nothing shows that callers are served", "reason", e.why)
	}
}

// rest waits until the next question is due: after a pause, or soon after the server
// has refused anything.
func (e *echo) rest(ctx context.Context, pause time.Duration, refusals <-chan struct{}) {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	case <-refusals:
		_ = jitter.Sleep(ctx, proofAgain) // so that a flood of them costs little
	}
}

// conclude takes note of how a question ended, and reports whether the verdict has
// changed. A single question without an answer says little.
func (e *echo) conclude(v verdict, why error) (changed bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, whyBefore := e.verdict, e.why
	switch v {
	case undecided: // not connected, which is shown elsewhere
		if before != undecided {
			return false
		}
		v = unproven // the groups need not wait for the connection Ask
	case proven:
		e.last, e.misses = time.Now(), 0
	case unproven:
		e.misses++
		late := e.misses >= 3 && time.Since(e.last) >= proofEvery
		if why == errNoReply && before == proven && !late {
			return false
		}
	}
	e.verdict, e.why = v, why
	return before != v || v != proven && fmt.Sprint(why) != fmt.Sprint(whyBefore)
}

// once asks one question, and returns how it ended.
func (e *echo) once(ctx context.Context) (verdict, error) {
	inbox := e.ask.NewInbox()
	e.rights.claim(inbox)
	defer e.rights.disclaim(inbox)
	e.rights.claim(e.subject)
	here, err := e.serve.Subscribe(e.subject, e.answer)
	if err != nil {
		return undecided, errNotAsked
	}
	defer func() { _ = here.Unsubscribe() }()
	replies, err := e.ask.SubscribeSync(inbox)
	if err != nil {
		return undecided, errNotAsked
	}
	defer func() { _ = replies.Unsubscribe() }()
	if e.rights.flush() != nil || e.ask.FlushTimeout(slowPing) != nil {
		return undecided, errNotAsked
	}
	if e.rights.subscription(e.subject) != "" {
		return unproven, errSubscription(e.subject, "")
	}
	secret := []byte(rand.Text())
	e.mu.Lock()
	e.secret = secret
	e.mu.Unlock()
	return e.await(ctx, inbox, replies, secret)
}

// await asks until the secret is heard, and returns how it ended.
func (e *echo) await(
	ctx context.Context, inbox string, replies *nats.Subscription, secret []byte,
) (verdict, error) {
	const look, anew = 50 * time.Millisecond, 10 // a subscription may not be known everywhere yet
	for i := 0; i < int(proofTimeout/look) && ctx.Err() == nil; i++ {
		if i%anew == 0 {
			if allowed, err := e.request(inbox); err != nil {
				return undecided, errNotAsked
			} else if !allowed {
				return unproven, errMayNotAsk(e.subject)
			}
		}
		m, err := replies.NextMsg(look)
		if err == nil && bytes.Equal(m.Data, secret) {
			return proven, nil
		}
		if !e.rights.mayPublish(inbox) {
			return refused, errRepliesRefused
		}
	}
	return unproven, errNoReply
}

// request asks the question, and reports whether the server allows that.
func (e *echo) request(inbox string) (allowed bool, err error) {
	before := e.ask.LastError()
	if err = e.ask.PublishRequest(e.subject, inbox, nil); err != nil {
		return false, err
	}
	if err = e.ask.FlushTimeout(slowPing); err != nil {
		return false, err
	}
	last := e.ask.LastError()
	_, pub := refusedBy(last)
	return last == before || pub != e.subject, nil
}

// answer answers the question.
func (e *echo) answer(m *nats.Msg) {
	e.mu.Lock()
	secret := e.secret
	e.mu.Unlock()
	_ = m.Respond(secret) // what is lost is asked again
}
