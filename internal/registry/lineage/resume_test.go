package lineage

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/segment"
)

const here, there = "HERE", "THERE"

// secondEra is the identity of a registry in its second era, with an incident if that has a cause.
func secondEra(in era.Incident) era.Identity {
	id := era.Found("kv", time.Time{})
	id.Registry, id.Era = here, "SECOND"
	id.Offsets = id.Offsets.Add(era.Offsets{"SECOND": 1000})
	if in.Cause != "" {
		in.ID = "I"
		id.Incident = &in
	}
	return id
}

// operator returns the operator of a registry, nil for one without identity; the person agrees. asked counts how often.
func operator(t *testing.T, id *era.Identity, choices Choices) (o *Operator, w *world, asked *int) {
	w, _, _, _ = calm(1)
	asked = new(int)
	if delete(w.bkt.entries, era.Key); id != nil {
		w.put(era.Key, id.Encode())
	}
	o = &w.newOp(0).o
	o.Choices, o.Limit, o.Now, o.Say = choices, 1<<40, time.Now, func(string) {}
	o.Ask = func(context.Context, string, []byte, func([]byte) bool) error { return errors.New("nobody") }
	o.Soon = func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), 30*time.Second)
	}
	o.List = func(context.Context, string, int) ([]segment.Tag, error) {
		return []segment.Tag{
			{Name: "a", MaxID: 5000}, {Name: "bounded", MaxID: 10, Rules: segment.Rules{Max: 99}},
			{Name: "deleted", MaxID: 10, Disabled: true, Rules: segment.Rules{Max: 99}},
			{Name: "full", MaxID: 1<<40 - 1},
		}, nil
	}
	o.Agree = func(Plan) error { *asked++; return nil }
	return o, w, asked
}

func TestAResumeBeginsAnEraAboveAllThatIsKnown(t *testing.T) {
	wentBack := secondEra(era.Incident{Cause: era.WentBack, Need: 500, Eras: era.Offsets{"LOST": 7_000_000}})
	lost := secondEra(era.Incident{Cause: era.Lost, Need: 0})
	sound := secondEra(era.Incident{})
	for name, tc := range map[string]struct {
		id     *era.Identity
		words  Choices
		offset int64
		says   string
	}{
		"by the usual bump":               {&wentBack, Choices{}, 7_000_000 + 500 + usualBump, ""},
		"by none":                         {&wentBack, Choices{Bump: new(int64)}, 7_000_000 + 500, ""},
		"of a backup that nobody noticed": {&sound, Choices{Restored: true}, 1000 + usualBump, ""},
		"whose marks are lost":            {&lost, Choices{Bump: new(int64(1e6))}, 1000 + 1e6, ""},
		"without identity":                {nil, Choices{Bump: new(int64(1e6))}, 1e6, ""},
		"not where nobody knows":          {&lost, Choices{}, 0, "above every ID that was ever used"},
		"nor without identity":            {nil, Choices{}, 0, "above every ID that was ever used"},
		"nor of one that is sound":        {&sound, Choices{Bump: new(int64(5))}, 0, "is not stopped"},
		"nor downwards":                   {&wentBack, Choices{Bump: new(int64(-1))}, 0, "want 0 to"},
		"nor of another one":              {&wentBack, Choices{Keep: there}, 0, "reaches registry " + here},
		"nor where the other is away":     {&wentBack, Choices{Keep: here}, 0, "no worker of another registry"},
		"above all offsets that there are": {&wentBack, Choices{Bump: new(int64(era.MostOffset))}, 0,
			"would have an offset above"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, w, asked := operator(t, tc.id, tc.words)
				before := w.bkt.last
				began := time.Now()
				p, err := o.Run()
				if tc.says != "" {
					if !errors.As(err, new(ChoicesError)) || !strings.Contains(err.Error(), tc.says) {
						t.Errorf("%v, want %q", err, tc.says)
					}
					if w.bkt.last != before {
						t.Error("the identity was changed")
					}
					return
				}
				id, _ := w.identity()
				if err != nil || id.Offset() != tc.offset || p.Offset != tc.offset || id.Incident != nil {
					t.Errorf("%+v, %v: %+v, want the offset %d", id, err, p, tc.offset)
				}
				if p.Registry != id.Registry {
					t.Errorf("it says that registry %q was resumed, which is %s", p.Registry, id.Registry)
				}
				if *asked != 1 || p.Outcome != "resumed" || time.Since(began) < joining {
					t.Errorf("asked %d times, after %v: %s", *asked, time.Since(began), p.Outcome)
				}
			})
		})
	}
}

func TestAPlanNamesTheTagsThatAreNotAsBefore(t *testing.T) {
	id := secondEra(era.Incident{Cause: era.WentBack})
	synctest.Test(t, func(t *testing.T) {
		o, w, asked := operator(t, &id, Choices{DryRun: true, Bump: new(int64(1 << 31))})
		before := w.bkt.last
		p, err := o.Run()
		if err != nil || !slices.Equal(p.Undecided, []string{"bounded", "full"}) || *asked > 0 || p.Outcome != "" ||
			!slices.Equal(p.Wide, []string{"a: 5000 -> 2147488648, beyond 2^31"}) || w.bkt.last != before {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

func TestNothingIsResumedWhereThatIsDoneOrRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sound := secondEra(era.Incident{})
		o, _, asked := operator(t, &sound, Choices{})
		if p, err := o.Run(); err != nil || p.Outcome != InOrder || p.Offset != 1000 || *asked > 0 {
			t.Errorf("sound: %+v, %v", p, err)
		}
		stopped := secondEra(era.Incident{Cause: era.WentBack})
		o, w, _ := operator(t, &stopped, Choices{})
		o.Agree = func(Plan) error { return errors.New("no") }
		before := w.bkt.last
		_, err := o.Run()
		if err == nil || !strings.Contains(err.Error(), "not resumed: no") || w.bkt.last != before {
			t.Errorf("not agreed: %v", err)
		}
		o.Agree = func(Plan) error { // another operator is faster
			next, err := stopped.Resume(1, 0, time.Time{})
			w.put(era.Key, next.Encode())
			return err
		}
		o.agreed = ""
		if p, err := o.Run(); err != nil || p.Outcome != InOrder || w.bkt.last != before+1 {
			t.Errorf("another was faster: %+v, %v", p, err)
		}
	})
}

// The registry that is not kept stops first, and its eras and marks count.
func TestAnotherRegistryIsStoppedAndMerged(t *testing.T) {
	marks := map[string]int64{"a": 9000, "other": 4_000_000}
	for bump, offset := range map[int64]int64{0: 5_000_000 + 4_000_000 - 1001, 10: 5_000_000 + 4_000_000 - 1001 + 10} {
		synctest.Test(t, func(t *testing.T) {
			id := secondEra(era.Incident{Cause: era.Second, Other: there})
			o, w, asked := operator(t, &id, Choices{})
			if _, err := o.Run(); err == nil || !strings.Contains(err.Error(), "which one serves with --keep") {
				t.Errorf("%v", err)
			}
			o.Keep, o.Bump = here, &bump
			var stopped time.Time
			o.Ask = func(_ context.Context, _ string, call []byte, hear func([]byte) bool) error {
				var c struct{ Op, After, Keep string }
				if err := json.Unmarshal(call, &c); err != nil {
					return err
				}
				reply := map[string]any{"notice": Notice{Registry: there, Process: "p"}}
				switch {
				case c.Op == "stop" && c.Keep == here:
					stopped, reply["eras"] = time.Now(), era.Offsets{"THEIRS": 5_000_000}
				case c.Op == "marks" && c.After == "":
					reply["marks"] = marks
				}
				answer, err := json.Marshal(reply)
				hear(answer)
				return err
			}
			p, err := o.Run()
			if id, _ = w.identity(); err != nil || !id.IsOf(there) || id.Offset() != offset || *asked != 1 {
				t.Errorf("%+v, %v, asked %d times, want the offset %d: %+v", id, err, *asked, offset, p)
			}
			if time.Since(stopped) < draining {
				t.Errorf("it resumed %v after the other one was stopped", time.Since(stopped))
			}
		})
	}
}
