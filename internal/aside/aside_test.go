package aside

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func TestAWorkerThatCannotLoadLeavesWhileAnotherCan(t *testing.T) {
	for how, trouble := range map[string]func(*fake){"refused": refuse, "hangs": hang} {
		t.Run(how, func(t *testing.T) {
			play(t, func(w *world) {
				f := w.add(3, "r", "kv")
				time.Sleep(time.Hour)
				if f[0].writes()+f[1].writes()+f[2].writes()+w.count(asks)+w.count(can) > 0 {
					t.Error("at rest something was written or said")
				}
				f[0].set(trouble)
				w.loads(f[0], 100*time.Millisecond)
				time.Sleep(1500 * time.Millisecond)
				if f[0].is() == Serving || w.in() != 2 {
					t.Fatalf("1.5 s later: %v, %d are in", f[0].is(), w.in())
				}
				time.Sleep(time.Minute)
				if f[0].is() != Aside || f[0].left() != 1 || w.in() != 2 {
					t.Errorf("a minute later: %v, it left %d times, %d are in", f[0].is(), f[0].left(), w.in())
				}
				if n := w.count(can); n > 80 {
					t.Errorf("%d reports in a minute", n)
				}
				f[0].set(restore)
				time.Sleep(5 * time.Second)
				if f[0].is() != Serving || f[0].Trouble() != nil {
					t.Errorf("its store is back: %v, %v", f[0].is(), f[0].Trouble())
				}
			})
		})
	}
}

func TestAllStayWhereNobodyCanLoad(t *testing.T) {
	play(t, func(w *world) {
		f := w.add(3, "r", "kv")
		for i, f := range f {
			f.set([]func(*fake){refuse, hang, hang}[i])
			w.loads(f, 100*time.Millisecond)
		}
		for range 600 {
			if time.Sleep(100 * time.Millisecond); w.in() != 3 {
				t.Fatalf("%d of 3 are in", w.in())
			}
		}
		if n := w.count(asks); n > 60 {
			t.Errorf("%d questions in a minute", n)
		}
		f[2].set(restore)
		time.Sleep(probeTimeout + askSeldom + probeTimeout) // it notices, it is asked, and another probe hangs
		if f[0].is() != Aside || f[1].is() != Aside || f[2].is() != Serving {
			t.Errorf("one can load again: %v, %v, %v", f[0].is(), f[1].is(), f[2].is())
		}
		f[2].set(refuse)
		time.Sleep(relyFor + stayFor)
		if w.in() != 3 {
			t.Errorf("that one cannot either: %d are in", w.in())
		}
	})
}

// What was written before the store went away is no proof.
func TestAllStayWhereTheStoreGoesAwayForAllAtOnce(t *testing.T) {
	for how, trouble := range map[string]func(*fake){"refused": refuse, "hangs": hang} {
		t.Run(how, func(t *testing.T) {
			play(t, func(w *world) {
				fakes := w.add(3, "r", "kv")
				for _, f := range fakes {
					w.loads(f, 30*time.Millisecond)
				}
				for range 20 {
					time.Sleep(time.Second)
					for _, f := range fakes {
						f.set(trouble)
					}
					for range 60 {
						if time.Sleep(50 * time.Millisecond); w.in() != 3 {
							t.Fatalf("%d of 3 are in", w.in())
						}
					}
					for _, f := range fakes {
						f.set(restore)
					}
					time.Sleep(10 * time.Second)
				}
			})
		})
	}
}

// Nor is what was reported before, to another worker.
func TestAReportOfBeforeTheTroubleDoesNotCount(t *testing.T) {
	play(t, func(w *world) {
		f := w.add(3, "r", "kv")
		for _, f := range f {
			w.loads(f, 30*time.Millisecond)
		}
		for range 10 {
			f[2].set(refuse)
			if time.Sleep(5 * time.Second); f[2].is() != Aside {
				t.Fatal("it did not leave")
			}
			f[0].set(refuse)
			f[1].set(refuse)
			for range 60 {
				if time.Sleep(50 * time.Millisecond); f[0].is() != Serving || f[1].is() != Serving {
					t.Fatalf("%v, %v", f[0].is(), f[1].is())
				}
			}
			for _, f := range f {
				f.set(restore)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// Nor is what is reported after the trouble, of a write from before it.
func TestAReportOfAWriteBeforeTheTroubleDoesNotCount(t *testing.T) {
	play(t, func(w *world) {
		f := w.add(1, "r", "kv")[0]
		f.set(refuse)
		w.loads(f, 100*time.Millisecond)
		for n := range 100 {
			time.Sleep(20 * time.Millisecond)
			f.Hear(fmt.Appendf(nil,
				`{"version":1,"says":"I can load","registry":"r","store":"kv","process":"x","age_ms":%d}`, 20*n+20))
		}
		if f.left() > 0 {
			t.Error("it left for a write from before its trouble")
		}
		f.Hear([]byte(`{"version":1,"says":"I can load","registry":"r","store":"kv","process":"x","age_ms":1900}`))
		if time.Sleep(time.Second); f.left() == 0 {
			t.Error("it stayed in spite of a write after its trouble")
		}
	})
}

// A probe that takes longer to fail than the others take to report once more must not be compared with the last report.
func TestAWorkerWhoseProbesFailSlowlyLeaves(t *testing.T) {
	play(t, func(w *world) {
		f := w.add(3, "r", "kv")
		f[0].set(func(f *fake) { f.takes = 700 * time.Millisecond })
		_ = f[0].load() // so that 2 s are not too long
		time.Sleep(time.Second)
		f[0].set(func(f *fake) { f.takes, f.fails = 2*time.Second, errRefused })
		w.running.Go(func() { _ = f[0].load() })
		if time.Sleep(10 * time.Second); f[0].left() == 0 {
			t.Error("it did not leave")
		}
	})
}

// A write under way for another question began too early for whoever asks meanwhile.
func TestWhoAsksWhileAnotherOneIsAnsweredIsAnsweredNext(t *testing.T) {
	play(t, func(w *world) {
		f := w.add(1, "r", "kv")[0]
		f.set(func(f *fake) { f.takes = 500 * time.Millisecond })
		_ = f.load() // so that this is not too long
		time.Sleep(time.Second)
		ask := `{"version":1,"says":"who can load","registry":"r","store":"kv","process":"x","to":"w1"}`
		f.Hear([]byte(ask))
		time.Sleep(100 * time.Millisecond)
		f.Hear([]byte(ask))
		if time.Sleep(1200 * time.Millisecond); w.count(can) != 2 {
			t.Errorf("%d reports, want 2", w.count(can))
		}
	})
}

func TestAReportDoesNotAnswerALaterQuestion(t *testing.T) {
	for age, want := range map[int]int{5: 0, 15: 1} { // of the write, in ms
		play(t, func(w *world) {
			f := w.add(1, "r", "kv")[0]
			body := `{"version":1,"says":"%s","registry":"r","store":"kv","process":"x","to":"y","age_ms":%d}`
			f.Hear(fmt.Appendf(nil, body, asks, 0))
			time.Sleep(50 * time.Millisecond)
			f.Hear(fmt.Appendf(nil, body, asks, 0))
			time.Sleep(10 * time.Millisecond)
			f.Hear(fmt.Appendf(nil, body, can, age))
			if time.Sleep(time.Second); w.count(can) != want {
				t.Errorf("another write began %d ms before: %d reports, want %d", age, w.count(can), want)
			}
		})
	}
}

// A worker that was asked already answers whoever asks before that answer is due by the same.
func TestOneReportAnswersAllWhoAskBeforeIt(t *testing.T) {
	play(t, func(w *world) {
		f := w.add(2, "r", "kv")
		for range 20 {
			// An answer is due 300 to 500 ms later, since another worker is to answer first.
			f[0].Hear([]byte(`{"version":1,"says":"who can load","registry":"r","store":"kv","process":"x","to":"y"}`))
			time.Sleep(time.Millisecond)
			_ = f[0].load()
			f[1].set(refuse)
			_ = f[1].load()
			if time.Sleep(700 * time.Millisecond); f[1].is() == Serving {
				t.Fatal("it did not leave: the answer it got rests on a write from before its question")
			}
			f[1].set(restore)
			time.Sleep(10 * time.Second)
		}
	})
}

// A write can begin and end while a watch looks.
func TestAWriteOfRightNowHasNoAge(t *testing.T) {
	var s store
	now := time.Now().Add(-time.Second)
	if s.succeeded(0); s.age(now) != 0 {
		t.Errorf("it is %v old", s.age(now))
	}
}

func TestManyQuestionsCostFewWrites(t *testing.T) {
	play(t, func(w *world) {
		f := w.add(1, "r", "kv")[0]
		for range 1000 {
			f.Hear([]byte(`{"version":1,"says":"who can load","registry":"r","store":"kv","process":"x"}`))
			time.Sleep(time.Millisecond)
		}
		if n := f.writes(); n < 1 || n > 6 {
			t.Errorf("%d writes in a second", n)
		}
	})
}

// A worker at rest does not know that its store is gone, until it is asked.
func TestAWorkerAtRestReportsOnlyWhatItHasWritten(t *testing.T) {
	play(t, func(w *world) {
		f := w.add(3, "r", "kv")
		for _, f := range f {
			f.set(refuse)
		}
		w.loads(f[0], 100*time.Millisecond)
		for range 100 {
			if time.Sleep(100 * time.Millisecond); w.in() != 3 || w.count(can) > 0 {
				t.Fatalf("%d of 3 are in, %d reports", w.in(), w.count(can))
			}
		}
		if f[1].writes() == 0 || f[2].writes() == 0 {
			t.Error("a worker that was asked did not try")
		}
	})
}

// A bucket without identity takes no proof.
func TestWithoutAProofNobodyReportsOrLeaves(t *testing.T) {
	play(t, func(w *world) {
		f := w.add(3, "r", "kv")
		for _, f := range f[1:] {
			f.set(func(f *fake) { f.fails = ErrNoProof })
		}
		f[0].set(refuse)
		w.loads(f[0], 100*time.Millisecond)
		time.Sleep(5 * time.Second)
		f[0].set(func(f *fake) { f.fails = ErrNoProof }) // loads fail of this, too
		time.Sleep(5 * time.Second)
		if w.in() != 3 || w.count(can) > 0 || f[0].Trouble() != nil {
			t.Errorf("%d of 3 are in, %d reports, %v", w.in(), w.count(can), f[0].Trouble())
		}
	})
}

// The first worker to notice that the store is back must not get the load of all.
func TestWhereTheStoreComesBackForAllMostStay(t *testing.T) {
	for how, trouble := range map[string]func(*fake){"refused": refuse, "hangs": hang} {
		t.Run(how, func(t *testing.T) {
			play(t, func(w *world) {
				fakes := w.add(30, "r", "kv")
				for range 8 {
					for _, f := range fakes {
						f.set(trouble)
						w.running.Go(func() { _ = f.load() })
						time.Sleep(rand.N(200 * time.Millisecond))
					}
					time.Sleep(2*relyFor + rand.N(20*time.Second)) // all are back that left at first
					for _, f := range fakes {
						f.set(restore)
						f.set(func(f *fake) { f.takes = 220 * time.Millisecond }) // as long as all come at once
					}
					for range 200 { // without the second probe four were left
						if time.Sleep(50 * time.Millisecond); w.in() < 25 {
							t.Fatalf("%d of 30 are in", w.in())
						}
					}
					if w.in() != 30 {
						t.Errorf("%d of 30 are in 10 s later", w.in())
					}
					for _, f := range fakes {
						f.set(func(f *fake) { f.takes = time.Millisecond })
						for range 50 { // until it is what is usual
							_ = f.load()
						}
					}
				}
			})
		})
	}
}

// Whatever fails and comes back in whatever order: one that is in the queue group is left.
func TestNeverDoAllLeave(t *testing.T) {
	play(t, func(w *world) {
		fakes := w.add(4, "r", "kv")
		for _, f := range fakes {
			w.loads(f, 50*time.Millisecond)
		}
		for n := range 1_500 {
			if f := fakes[n%4]; w.t.Context().Err() == nil && n%7 == 0 {
				f.set([]func(*fake){restore, refuse, hang}[(n/7*n/13)%3])
			}
			if time.Sleep(53 * time.Millisecond); w.in() == 0 {
				t.Fatalf("after %d turns all have left", n)
			}
		}
		left := 0
		for _, f := range fakes {
			left += f.left()
		}
		if left < 10 {
			t.Errorf("they left %d times: this test shows nothing", left)
		}
	})
}

func TestATagInTroubleTakesNobodyOut(t *testing.T) {
	play(t, func(w *world) {
		f := w.add(3, "r", "kv")
		for range 100 { // of a row that is locked: the load hangs, or is refused after a while
			ended := f[0].Load()
			time.Sleep(time.Second)
			ended(context.DeadlineExceeded, false)
		}
		if f[0].left() > 0 || w.count(asks) > 0 {
			t.Errorf("it left %d times, and asked %d times", f[0].left(), w.count(asks))
		}
		if f[0].writes() > 110 {
			t.Errorf("%d writes in 100 s", f[0].writes())
		}
		before := f[0].probes()
		w.loads(f[0], 50*time.Millisecond) // of another tag: what is locked is no doubt then
		for range 20 {
			ended := f[0].Load()
			time.Sleep(time.Second)
			ended(context.DeadlineExceeded, false)
		}
		if n := f[0].probes() - before; n > 1 {
			t.Errorf("%d probes, while loads of another tag succeeded", n)
		}
		ended := f[1].Load()
		ended(errors.New("no such tag"), true)
		time.Sleep(time.Second)
		if f[1].writes() > 0 {
			t.Error("a tag that does not exist had the store probed")
		}
	})
}

func TestOnlyReportsOfTheSameRegistryAndStoreCount(t *testing.T) {
	for name, tc := range map[string]struct{ registry, kind string }{
		"another registry":   {"other", "kv"},
		"an unknown one":     {"", "kv"},
		"another store":      {"r", "mysql"},
		"another everything": {"other", "mysql"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				f := w.add(1, "r", "kv")[0]
				w.add(2, tc.registry, tc.kind)
				f.set(refuse)
				w.loads(f, 100*time.Millisecond)
				if time.Sleep(10 * time.Second); f.left() > 0 {
					t.Error("it left")
				}
			})
		})
	}
}

// What others answer that know nothing of reports: streams and bystanders.
func TestWhatIsNoReportChangesNothing(t *testing.T) {
	play(t, func(w *world) {
		f := w.add(1, "r", "kv")[0]
		f.set(refuse)
		w.loads(f, 100*time.Millisecond)
		for range 100 {
			for _, body := range []string{
				"", "ok", `{"stream":"all","seq":7}`, `{"version":1,"registry":"r","extra":"x","revision":"7"}`,
				`{"version":2,"says":"I can load","registry":"r","store":"kv","process":"x"}`,
				`{"version":1,"says":"I can load","registry":"r","store":"kv","process":"w1"}`, // its own
			} {
				f.Hear([]byte(body))
			}
			time.Sleep(100 * time.Millisecond)
		}
		if f.left() > 0 {
			t.Error("it left")
		}
	})
}

func TestManyWorkersDoNotAnswerAtOnce(t *testing.T) {
	play(t, func(w *world) {
		fakes := w.add(100, "r", "kv")
		for _, f := range fakes[:30] {
			f.set(refuse)
			w.loads(f, time.Second)
		}
		time.Sleep(2 * time.Second)
		if w.in() != 70 {
			t.Errorf("%d of 100 are in, and 70 can load", w.in())
		}
		t.Logf("at first %d questions and %d reports", w.count(asks), w.count(can))
		if w.count(asks) > 20 || w.count(can) > 30 {
			t.Errorf("%d questions, %d reports", w.count(asks), w.count(can))
		}
		begun := w.count(asks) + w.count(can)
		time.Sleep(20 * time.Second)
		said := w.count(asks) + w.count(can) - begun
		t.Logf("then %d messages in 20 s", said)
		if w.in() != 70 || said > 20*6 {
			t.Errorf("%d are in, %d messages in 20 s", w.in(), said)
		}
	})
}

// Where messages are late nobody hears others in time. Each goes to all, so their cost is the square of the fleet.
func TestManyWorkersWhoseMessagesAreLateSpeakSeldom(t *testing.T) {
	play(t, func(w *world) {
		f := w.add(60, "r", "kv")
		w.late = 1500 * time.Millisecond
		for _, f := range f[:30] {
			f.set(refuse)
			f.Suspect() // no load shows that its store is back
		}
		time.Sleep(time.Minute)
		wrote := func() (n int) { // by those that can load
			for _, f := range f[30:] {
				n += f.writes()
			}
			return n
		}
		said, before := w.count(asks)+w.count(can), wrote()
		time.Sleep(time.Minute)
		said, writes := w.count(asks)+w.count(can)-said, wrote()-before
		t.Logf("%d messages, %d writes of those that can load", said, writes)
		if said > 300 || writes > 300 {
			t.Errorf("60 workers sent %d messages in a minute, and 30 wrote %d times", said, writes)
		}
		for _, f := range f[:30] {
			f.set(restore)
		}
		time.Sleep(time.Minute)
		if w.in() != len(f) {
			t.Errorf("their store is back: %d are in", w.in())
		}
	})
}

func TestAWorkerInACrowdSoonNoticesThatItsStoreIsBack(t *testing.T) {
	play(t, func(w *world) {
		f := w.add(1, "r", "kv")[0]
		f.set(refuse)
		f.Suspect() // no load shows that its store is back
		for i := range 800 {
			w.publish(fmt.Appendf(nil, `{"version":1,"says":"I leave","registry":"r","store":"kv","process":"%d"}`, i))
			time.Sleep(50 * time.Millisecond)
		}
		f.set(restore)
		for began := time.Now(); f.Trouble() != nil; time.Sleep(50 * time.Millisecond) {
			if time.Since(began) > 15*time.Second { // the longest pause, four times that of a small fleet
				t.Fatalf("its store has been back for 15 s: %v", f.Trouble())
			}
		}
	})
}

func TestWhoReliedOnAWorkerThatStopsComesBackAtOnce(t *testing.T) {
	for name, end := range map[string]func(*fake){
		"it stops":              func(f *fake) { f.stop() },
		"it leaves, for itself": func(f *fake) { f.set(func(f *fake) { f.out = true }) },
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				f := w.add(2, "r", "kv")
				f[0].set(refuse)
				w.loads(f[0], 100*time.Millisecond)
				if time.Sleep(5 * time.Second); f[0].is() != Aside {
					t.Fatal("it did not leave")
				}
				end(f[1])
				if time.Sleep(goneAfter + 50*time.Millisecond); f[0].is() != Serving {
					t.Error("it is not back")
				}
			})
		})
	}
}

func TestAWorkerWhoseReportsAreNotHeardIsNotReliedOnForLong(t *testing.T) {
	play(t, func(w *world) {
		f := w.add(2, "r", "kv")
		f[0].set(refuse)
		w.loads(f[0], 100*time.Millisecond)
		if time.Sleep(5 * time.Second); f[0].is() != Aside {
			t.Fatal("it did not leave")
		}
		w.mu.Lock()
		w.silent = true
		w.mu.Unlock()
		if time.Sleep(relyFor + 50*time.Millisecond); f[0].is() != Serving {
			t.Error("it is not back 2 s later")
		}
	})
}

// Loads that have always been slow are no doubt.
func TestASlowStoreIsNoTrouble(t *testing.T) {
	play(t, func(w *world) {
		f := w.add(3, "r", "kv")
		f[0].set(func(f *fake) { f.takes = 200 * time.Millisecond })
		_ = f[0].load()
		f[0].set(func(f *fake) { f.takes = 550 * time.Millisecond })
		for range 100 {
			_ = f[0].load()
		}
		if f[0].left() > 0 {
			t.Errorf("it left %d times", f[0].left())
		}
	})
}
