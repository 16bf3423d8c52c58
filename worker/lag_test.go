package worker

import (
	"bytes"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/internal/testkit/wait"
)

const ms = time.Millisecond

func TestALagIsWhatWaitsInTheServerAndInThisProcess(t *testing.T) {
	var l lag
	l.mark(10*ms, 1, 100)
	l.mark(30*ms, 2, 150)
	for _, step := range []struct {
		now              time.Duration
		answered         proof
		arrived, waiting int64
		reached          time.Duration // when the mark was set that was reached
		lag              time.Duration
	}{
		{now: 35 * ms, arrived: 200, waiting: 5, lag: 25 * ms},               // behind others in the server
		{now: 40 * ms, answered: 1, arrived: 300, waiting: 50, lag: 30 * ms}, // 50 are ahead of the mark here
		{now: 60 * ms, answered: 1, arrived: 349, waiting: 80, lag: 50 * ms}, // 80 came behind it
		{now: 70 * ms, answered: 1, arrived: 350, waiting: 90, reached: 10 * ms, lag: 60 * ms},
		{now: 80 * ms, answered: 1, arrived: 440, waiting: 0, lag: 60 * ms}, // the second mark is in the server
		{now: 99 * ms, answered: 1, arrived: 440, waiting: 0, lag: 69 * ms},
		{now: 99 * ms, answered: 2, arrived: 440, waiting: 0, reached: 30 * ms, lag: 69 * ms},
		{now: 200 * ms, answered: 2, arrived: 500, waiting: 9, lag: 69 * ms}, // no mark
	} {
		m, reached := l.see(step.now, step.answered, step.arrived, step.waiting)
		if reached != (step.reached > 0) || m.set != step.reached || l.of(step.now) != step.lag {
			t.Errorf("%+v: reached %v %v, lag %v", step, reached, m, l.of(step.now))
		}
	}
	l.mark(300*ms, 3, 500)
	l.mark(310*ms, 4, 500)
	if m, _ := l.see(311*ms, 4, 500, 0); m.set != 310*ms || l.of(400*ms) != ms {
		t.Errorf("with nothing ahead of both: %+v", l)
	}
}

func TestAnOverloadIsOneAlarmHoweverOftenTheGroupLeaves(t *testing.T) {
	var o overload
	alarms, begun, ended := 0, 0, 0
	pass := func(from, to time.Duration) {
		for now := from; now < to; now += 20 * ms {
			alarm, over := o.pass(now)
			if alarm {
				alarms++
			}
			if over {
				ended++
			}
		}
	}
	away := func(from, to time.Duration) {
		if o.leave(from) {
			begun++
		}
		pass(from, to)
		o.on = false
	}
	want := func(when string, b, a, e int) {
		t.Helper()
		if begun != b || alarms != a || ended != e {
			t.Errorf("%s: %d begun, %d alarms, %d ended; want %d, %d, %d", when, begun, alarms, ended, b, a, e)
		}
	}
	away(0, 500*ms)
	pass(500*ms, 20*time.Second)
	want("a moment", 1, 0, 1)
	for now := 20 * time.Second; now < 40*time.Second; now += time.Second {
		away(now, now+200*ms)
		pass(now+200*ms, now+time.Second)
	}
	want("20 s", 2, 1, 1)
	if !o.isTrouble(40*time.Second) || o.isTrouble(42*time.Second) {
		t.Error("it is trouble for a second after the group was away, and no longer")
	}
	pass(40*time.Second, 60*time.Second)
	want("quiet", 2, 1, 2)
}

func TestAPauseThatIsOverMakesNobodyLeaveHoweverMuchIsAnsweredLater(t *testing.T) {
	e := &endpoint{}
	g := &group{
		link: &link{Config: Config{Log: slog.New(slog.DiscardHandler)}}, ping: &pinger{shortest: ms},
		endpoints: []*endpoint{e}, subs: []*nats.Subscription{},
		strain: strain{leaveAt: leaveAt, joinAt: joinAt},
	}
	g.lag.mark(0, 1, 0)
	e.arrived.Add(few)
	g.ping.answered = 1
	for now := 2 * leaveAt; now < time.Second; now += 5 * ms {
		g.measure(now)
		e.arrived.Add(100)
	}
	if g.overload.on {
		t.Error("it left")
	}
}

// A worker that is back below its capacity is idle now and then, and would give itself
// ever smaller credits.
func TestARateIsWhatIsAnsweredWhileRequestsWait(t *testing.T) {
	var r rate
	now, arrived := time.Duration(0), int64(0)
	pass := func(perSecond, waiting int64) float64 {
		for range 400 {
			now += markEvery
			arrived += perSecond * int64(markEvery) / int64(time.Second)
			r.note(now, arrived, waiting)
		}
		return r.perSecond
	}
	for _, step := range []struct {
		when                     string
		perSecond, waiting, want int64
	}{
		{"with a queue", 10_000, 500, 10_000},
		{"below the capacity", 1000, 0, 10_000},
		{"faster, without a queue", 20_000, 0, 20_000},
		{"away, with nothing left to do", 0, 0, 20_000},
		{"on a machine that became slow", 500, 100, 500},
	} {
		if got := pass(step.perSecond, step.waiting); got < 0.99*float64(step.want) || got > 1.01*float64(step.want) {
			t.Errorf("%s: %.0f per second, want %d", step.when, got, step.want)
		}
	}
	r.note(now+markEvery/2, arrived, 0) // idle for a moment
	if r.note(now+markEvery, arrived, 100); r.perSecond < 499 {
		t.Errorf("%.0f per second after a time in which nothing waited for a moment", r.perSecond)
	}
}

// The default of control groups is a period of 100 ms.
func TestARateIsThatOfAllSlicesInWhichAProcessRuns(t *testing.T) {
	var r rate
	arrived := int64(0)
	for i := range 200 {
		if i%5 == 0 {
			arrived += 1000
		}
		r.note(time.Duration(i+1)*markEvery, arrived, 500)
		if got := r.perSecond; i > 50 && (got < 7_500 || got > 12_500) {
			t.Errorf("after %v: %.0f per second, want about 10000", time.Duration(i+1)*markEvery, got)
		}
	}
}

// A creditedGroup joins with a credit, at 1000 requests per second.
type creditedGroup struct {
	*group
	*testing.T
	handled chan struct{}
}

func joinWithCredit(t *testing.T) creditedGroup {
	return joinWithCreditOn(t, natstest.Connect(t, natstest.Start(t)))
}

func joinWithCreditOn(t *testing.T, conn *nats.Conn) creditedGroup {
	e := &endpoint{subject: "id.snowflake"}
	handled := make(chan struct{}, 1000)
	e.handler = func() handler { return func(request, *nats.Msg) { handled <- struct{}{} } }
	e.link = &link{conn: conn, own: "id."}
	g := &group{
		link:      &link{Config: Config{Log: slog.New(slog.DiscardHandler)}, conn: conn},
		ping:      newPinger(conn),
		endpoints: []*endpoint{e},
		strain:    strain{credit: credit{rate: rate{perSecond: 1000}}, overload: overload{times: 1}},
	}
	if err := g.join(0); err != nil {
		t.Fatal(err)
	}
	return creditedGroup{g, t, handled}
}

// deliver delivers n requests.
func (g creditedGroup) deliver(n int) {
	g.Helper()
	for range n {
		if err := g.link.conn.PublishRequest(g.endpoints[0].subject, "inbox", nil); err != nil {
			g.Fatal(err)
		}
	}
	for range n {
		select {
		case <-g.handled:
		case <-time.After(30 * time.Second):
			g.Fatalf("not all of %d requests were handled", n)
		}
	}
}

// follows reports whether another credit follows at a time.
func (g creditedGroup) follows(now time.Duration) bool {
	before := g.subs[0]
	g.refill(now)
	return g.subs[0] != before
}

func TestACreditIsFollowedByAnotherWellBeforeItIsUsedUp(t *testing.T) {
	g := joinWithCredit(t)
	all := int(creditFor / time.Millisecond)
	if g.deliver(all/2 - 2); g.follows(0) {
		t.Errorf("another credit follows when more than half of %d are left", all)
	}
	if g.deliver(1); !g.follows(0) {
		t.Errorf("no other credit follows when half of %d are left", all)
	}
}

func TestCreditsLastLongerOnceNoneIsUsedUp(t *testing.T) {
	g := joinWithCredit(t)
	want := func(now time.Duration, credit time.Duration) {
		t.Helper()
		if g.overload.last = now; !g.follows(now) || g.endpoints[0].granted != int(credit/time.Millisecond) {
			t.Errorf("at %v: credit for %d requests follows, want %v", now, g.endpoints[0].granted, credit)
		}
	}
	used := g.endpoints[0].granted - 1
	g.deliver(used)
	want(3*lasting, creditFor) // it is found used up
	g.deliver(used / 2)
	want(4*lasting-1, creditFor)
	g.deliver(used / 2)
	want(4*lasting, creditBelow)
}

// A lateConn holds back what follows an UNSUB, until it is released.
type lateConn struct {
	net.Conn
	mu       sync.Mutex
	held     []byte
	released bool
}

func (c *lateConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = append(c.held, b...)
	before, _, found := bytes.Cut(c.held, []byte("UNSUB "))
	if c.released || !found {
		before = c.held
	}
	_, err := c.Conn.Write(before)
	c.held = c.held[len(before):]
	return len(b), err
}

func (c *lateConn) release() {
	c.mu.Lock()
	c.released = true
	c.mu.Unlock()
	_, _ = c.Write(nil)
}

// dial dials a server in place of the NATS client.
type dial func(network, address string) (net.Conn, error)

func (d dial) Dial(network, address string) (net.Conn, error) { return d(network, address) }

// The NATS client drops what comes beyond the limit of a subscription.
func TestRequestsBeyondACreditAreHandledIfTheServerReadsItsLimitLate(t *testing.T) {
	url, late := natstest.Start(t), new(lateConn)
	conn, err := nats.Connect(url, nats.SetCustomDialer(dial(func(network, address string) (net.Conn, error) {
		c, err := net.Dial(network, address)
		late.Conn = c
		return late, err
	})))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	g := joinWithCreditOn(t, conn)
	caller := natstest.Connect(t, url)
	e := g.endpoints[0]
	ask := func(n int) {
		for range n {
			if err := caller.Publish(e.subject, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := caller.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, "it subscribes", func() bool {
		ask(1)
		return e.arrived.Load() > 0
	})
	more := 3 * e.granted
	ask(more)
	late.release()
	wait.Until(t, "it gets all requests", func() bool { return e.arrived.Load() > int64(more) })
}
