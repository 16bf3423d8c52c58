package standby

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

func TestAWorkerThatCannotLoadLeavesWhileAnotherCan(t *testing.T) {
	for name, lose := range map[string]func(w *world, f *fake){
		"writes are refused": func(w *world, f *fake) { w.refuse(f) },
		"writes hang": func(w *world, f *fake) {
			f.set(func(f *fake) { f.hangs = true })
			w.running.Go(func() { f.load(w.ctx) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				all := w.add(3, "R", "kv")
				time.Sleep(time.Second)
				lose(w, all[0])
				w.within(3*time.Second, "it leaves", func() bool { return all[0].State() == Standby })
				out := func() bool { return w.in() == 2 && all[0].State() != Serving }
				w.always(time.Minute, "only this one is out", out)
				if all[0].Trouble() == nil {
					t.Error("it has no trouble")
				}
				heal(all[0])
				w.within(5*time.Second, "it comes back", func() bool { return w.in() == 3 && all[0].Trouble() == nil })
			})
		})
	}
}

func TestAllStayWhereNobodyCanLoad(t *testing.T) {
	play(t, func(w *world) {
		all := w.add(5, "R", "kv")
		time.Sleep(time.Second)
		w.refuse(all...)
		w.always(time.Minute, "all are in", func() bool { return w.in() == 5 })
	})
}

// Where the store comes back for all, the first worker to notice would get the whole load.
func TestWhereTheStoreComesBackForAllMostStay(t *testing.T) {
	for range 20 {
		play(t, func(w *world) {
			all := w.add(10, "R", "kv")
			for _, f := range all {
				f.set(func(f *fake) { f.hangs, f.takes = true, time.Duration(1+rand.IntN(60))*time.Millisecond })
				w.running.Go(func() { f.load(w.ctx) })
			}
			time.Sleep(10*time.Second + rand.N(2*time.Second))
			heal(all...)
			w.always(10*time.Second, "9 of 10 are in", func() bool { return w.in() >= 9 })
			w.within(time.Second, "all are in", func() bool { return w.in() == 10 })
		})
	}
}

// The law: whatever fails when, however late messages are, one of the workers that hear one another is in.
func TestNeverDoAllLeave(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		play(t, func(w *world) {
			w.late = time.Duration(1+random.IntN(300)) * time.Millisecond
			all := w.add(2+random.IntN(4), "R", "kv")
			ctx, cancel := context.WithCancel(w.ctx)
			defer cancel()
			for _, f := range all {
				f.set(func(f *fake) { f.takes = time.Duration(1+random.IntN(400)) * time.Millisecond })
				pause := time.Duration(50+random.IntN(500)) * time.Millisecond
				w.running.Go(func() { // its loads
					for ctx.Err() == nil {
						f.load(ctx)
						time.Sleep(pause)
					}
				})
			}
			w.running.Go(func() {
				for ctx.Err() == nil {
					f := all[random.IntN(len(all))]
					f.set(func(f *fake) { f.fails, f.hangs = nil, false })
					switch random.IntN(3) {
					case 0:
						f.set(func(f *fake) { f.fails = errRefused })
					case 1:
						f.set(func(f *fake) { f.hangs = true })
					}
					time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
				}
			})
			for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if w.in() == 0 {
					t.Fatalf("seed %d: all have left, %v before the end", seed, time.Until(end))
				}
			}
		})
	}
}

// A worker whose write has succeeded since it asked may have answered another one by that write.
func TestAnAnswerToAQuestionOfBeforeTheOwnLastWriteDoesNotCount(t *testing.T) {
	play(t, func(w *world) {
		all := w.add(2, "R", "kv")
		a := all[0]
		w.refuse(a)
		asked := make(chan struct{})
		answer := make(chan struct{})
		a.set(func(f *fake) {
			f.asks = func(context.Context) ([]byte, error) {
				close(asked)
				<-answer
				return json.Marshal(all[1].message(true))
			}
		})
		<-asked
		heal(a)
		a.load(w.ctx) // by which it may answer
		a.set(func(f *fake) { f.fails = errRefused })
		a.set(func(f *fake) { f.asks = nil })
		all[1].set(func(f *fake) { f.fails = errRefused })
		time.Sleep(time.Millisecond)
		a.load(w.ctx)
		close(answer)
		w.always(10*time.Second, "it stays", func() bool { return a.State() == Serving })
	})
}

func TestATagInTroubleTakesNobodyOut(t *testing.T) {
	play(t, func(w *world) {
		all := w.add(2, "R", "kv")
		for range 50 {
			ended := all[0].Load()
			ended(errRefused, false) // a locked row; probes succeed
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		if all[0].leaves > 0 || all[0].writes > 7 {
			t.Errorf("it left %d times, and probed %d times in 5 s", all[0].leaves, all[0].writes)
		}
		all[0].set(func(f *fake) { f.writes = 0 })
		time.Sleep(time.Minute)
		synctest.Wait()
		if all[0].writes > 1 {
			t.Errorf("at rest it probed %d times", all[0].writes)
		}
	})
}

func TestOnlyAnswersOfTheSameRegistryAndStoreCount(t *testing.T) {
	for _, tc := range []struct {
		registry, kind string
		leaves         bool
	}{{"R", "kv", true}, {"other", "kv", false}, {"R", "mysql", false}, {"", "kv", false}} {
		play(t, func(w *world) {
			one := w.add(1, "R", "kv")[0]
			w.add(1, tc.registry, tc.kind)
			time.Sleep(time.Second)
			w.refuse(one)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if left := one.leaves > 0; left != tc.leaves {
				t.Errorf("beside a worker of registry %q on %s it left: %v", tc.registry, tc.kind, left)
			}
		})
	}
}

// A listener on all subjects makes questions end in silence, and a stream answers them.
func TestWhatIsNoAnswerCountsAsSilence(t *testing.T) {
	for name, ask := range map[string]func(ctx context.Context) ([]byte, error){
		"silence":  func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() },
		"a stream": func(context.Context) ([]byte, error) { return []byte(`{"stream":"S","seq":7}`), nil },
		"empty":    func(context.Context) ([]byte, error) { return nil, nil },
		"its own question": func(context.Context) ([]byte, error) {
			return []byte(`{"version":1,"can_load":true,"registry":"R","store":"kv","process":"w1"}`), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				all := w.add(2, "R", "kv")
				all[0].set(func(f *fake) { f.asks = ask })
				w.refuse(all[0])
				w.always(20*time.Second, "it stays", func() bool { return all[0].State() == Serving })
			})
		})
	}
}

func TestManyQuestionsCostFewWrites(t *testing.T) {
	play(t, func(w *world) {
		one := w.add(1, "R", "kv")[0]
		asker := New(Config{Process: "p", Kind: "kv", Registry: one.cfg.Registry, Name: func() string { return "p" }})
		question, _ := json.Marshal(asker.message(false))
		time.Sleep(time.Second)
		answered := make(chan []byte, 2000)
		for range 2000 {
			one.Answer(question, func(a []byte) { answered <- a })
			time.Sleep(time.Millisecond)
		}
		can := 0
		for range 2000 {
			if m, ok := asker.parse(<-answered); ok && m.CanLoad {
				can++
			}
		}
		synctest.Wait()
		if one.writes > 12 || can == 0 {
			t.Errorf("%d writes for 2,000 questions in 2 s, of which %d were answered", one.writes, can)
		}
	})
}

func TestAWorkerAnswersOnlyByAWriteThatBeganAfterTheQuestion(t *testing.T) {
	play(t, func(w *world) {
		all := w.add(2, "R", "kv")
		all[0].load(w.ctx) // succeeds
		time.Sleep(time.Second)
		all[0].set(func(f *fake) { f.fails = errRefused }) // it has not noticed
		question, _ := json.Marshal(all[1].message(false))
		answered := make(chan []byte, 1)
		all[0].Answer(question, func(a []byte) { answered <- a })
		if a := <-answered; a != nil {
			t.Errorf("it answers %s", a)
		}
		w.within(2*time.Second, "it notices its trouble", func() bool { return all[0].Trouble() != nil })
	})
}

func TestWithoutAProofNobodyAnswersOrLeaves(t *testing.T) {
	play(t, func(w *world) {
		all := w.add(2, "R", "kv")
		for _, f := range all {
			f.set(func(f *fake) { f.fails = ErrNoProof })
			w.running.Go(func() { f.load(w.ctx) })
		}
		w.always(10*time.Second, "both are in, without trouble", func() bool {
			return w.in() == 2 && all[0].Trouble() == nil && all[1].Trouble() == nil
		})
	})
}

func TestAWorkerComesBackSoonAfterTheOtherOneIsGone(t *testing.T) {
	for name, tc := range map[string]struct {
		goes   func(f *fake)
		within time.Duration
	}{
		"it left for another reason": {func(f *fake) { f.out = true }, 1500 * time.Millisecond},
		"it cannot load either":      {func(f *fake) { f.fails = errRefused }, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(w *world) {
				all := w.add(2, "R", "kv")
				time.Sleep(time.Second)
				w.refuse(all[0])
				w.within(3*time.Second, "it leaves", func() bool { return all[0].State() == Standby })
				all[1].set(tc.goes)
				w.within(tc.within, "it comes back", func() bool { return all[0].State() == Serving })
			})
		})
	}
}

func TestASlowStoreIsNoTrouble(t *testing.T) {
	play(t, func(w *world) {
		all := w.add(3, "R", "kv")
		for _, f := range all {
			f.set(func(f *fake) { f.takes = 800 * time.Millisecond })
			w.running.Go(func() {
				for w.ctx.Err() == nil {
					f.load(w.ctx)
					time.Sleep(300 * time.Millisecond)
				}
			})
		}
		time.Sleep(5 * time.Second) // by then they know how long a write takes
		w.always(time.Minute, "all are in, without trouble", func() bool {
			return w.in() == 3 && all[0].Trouble() == nil
		})
	})
}

// The answer to a write can be lost with a connection: the probe would wait for it.
func TestAWorkerProbesAgainOnceItIsConnectedAgain(t *testing.T) {
	play(t, func(w *world) {
		all := w.add(2, "R", "kv")
		time.Sleep(time.Second)
		all[0].set(func(f *fake) { f.hangs = true })
		w.running.Go(func() { all[0].load(w.ctx) })
		w.within(3*time.Second, "it leaves", func() bool { return all[0].State() == Standby })
		heal(all[0])
		all[0].Suspect()
		w.within(100*time.Millisecond, "it comes back", func() bool { return all[0].State() == Serving })
	})
}
