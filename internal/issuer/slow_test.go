package issuer

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/snowflake"
)

// slowly runs f in virtual time with an issuer whose clock advances by 1 ms in each 5 ms:
// it issues a fifth of its layout's IDs, as a process does that runs now and then.
func slowly(t *testing.T, f func(i *Issuer)) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		l := snowflake.Leaf
		l.Epoch = began.Add(-24 * time.Hour).UnixMilli()
		g, err := snowflake.NewGenerator(l, 1, began.UnixMilli(), began.Add(time.Hour).UnixMilli(), ahead)
		if err != nil {
			t.Fatal(err)
		}
		i := New(deadline, 4096, func() int64 { return began.UnixMilli() + time.Since(began).Milliseconds()/5 })
		i.Use(g)
		f(i)
	})
}

func TestAQueueIsAsLongAsTheIssuerCanAnswerInTime(t *testing.T) {
	slowly(t, func(i *Issuer) {
		const n, every, lasts = 10_000, 5 * time.Millisecond, 8 * time.Second
		out, asked := make(chan answer, 8192), 0
		served, waited := 0, time.Duration(0)
		for began := time.Now(); time.Since(began) < lasts; asked++ {
			name := "early"
			if time.Since(began) > 2*deadline {
				name = "late"
			}
			ask(t, i, name, n, out)
			time.Sleep(every)
		}
		for range asked {
			switch got := <-out; {
			case got.err == nil && got.at <= deadline:
				served++
				waited = max(waited, got.at)
			case got.err != nil && got.name == "early" && got.at < deadline:
			case errors.Is(got.err, ErrTooMany) && got.at == 0:
			default:
				t.Fatalf("%+v, want IDs in time, or a refusal at once", got)
			}
		}
		all := int(i.Generator().Layout().Yield(lasts/5)) / n
		if served < all*9/10 || waited < deadline/2 {
			t.Errorf("%d of %d batches were served, the slowest after %v: the queue is too short", served, all, waited)
		}
	})
}

func TestAnAnswerThatTheClockDoesNotAllowComesBeforeTheDeadline(t *testing.T) {
	slowly(t, func(i *Issuer) {
		out := make(chan answer, 64)
		for range 64 {
			ask(t, i, "", 50_000, out)
		}
		for range 64 {
			if got := <-out; got.at > deadline*7/8 {
				t.Errorf("%+v, want it with time left to send it", got)
			}
		}
	})
}

func TestAnAnswerThatIsDueAfterAStandstillIsAnError(t *testing.T) {
	slowly(t, func(i *Issuer) {
		ask(t, i, "", 100_000, make(chan answer, 1))
		out := make(chan answer, 1)
		ask(t, i, "", 1, out)
		i.mu.Lock()
		for k := range i.parked {
			i.parked[k].came = i.parked[k].came.Add(-2 * deadline) // the process stands still meanwhile
		}
		i.mu.Unlock()
		i.serve()
		if got := <-out; !errors.Is(got.err, ErrExpired) {
			t.Errorf("%+v, want ErrExpired", got)
		}
	})
}
