package lineage

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/internal/registry/era"
	"github.com/natsid/natsid/segment"
)

// An identityOnly is a bucket of marks without tags.
type identityOnly struct {
	Bucket   // nil: an operator calls nothing else
	identity buckets.Entry
}

func (m *identityOnly) Look(context.Context) (buckets.Info, error) { return buckets.Info{}, nil }

func (m *identityOnly) Get(context.Context, string) (buckets.Entry, error) {
	if m.identity.Revision == 0 {
		return m.identity, buckets.ErrNoKey
	}
	return m.identity, nil
}

func (m *identityOnly) Create(ctx context.Context, key string, value []byte) (uint64, error) {
	return m.Update(ctx, key, value, 0)
}

func (m *identityOnly) Update(_ context.Context, key string, value []byte, last uint64) (uint64, error) {
	if last != m.identity.Revision {
		return 0, buckets.ErrRevision
	}
	m.identity = buckets.Entry{Key: key, Value: value, Revision: last + 1}
	return last + 1, nil
}

func (m *identityOnly) Latest(context.Context, string) (map[string]buckets.Entry, error) {
	return nil, nil
}

func (m *identityOnly) read(t *testing.T) era.Identity {
	t.Helper()
	id, err := era.Decode(m.identity.Value)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

const here, there = "HERE", "THERE"

// secondEra is the identity of a registry in its second era, with an incident if that has a cause.
func secondEra(in era.Incident) era.Identity {
	id := era.Found("kv", time.Time{})
	id.Registry, id.Era = here, "E"
	id.Offsets = id.Offsets.Add(era.Offsets{"E": 1000})
	if in.Cause != "" {
		in.ID = "I"
		id.Incident = &in
	}
	return id
}

// operator returns an operator of a registry, "" for one without identity, by an operator who agrees; and how often it
// was asked.
func operator(t *testing.T, id *era.Identity, w Choices) (o *Operator, m *identityOnly, asked *int) {
	m, asked = new(identityOnly), new(int)
	if id != nil {
		m.identity = buckets.Entry{Key: era.Key, Value: id.Encode(), Revision: 1}
	}
	o = &Operator{
		Choices: w, Limit: 1 << 40, Say: func(string) {},
		Bucket: m, Kind: "kv", Now: time.Now, Announce: func([]byte) error { return nil },
		Ask: func(context.Context, string, []byte, func([]byte) bool) error { return errors.New("nobody") },
		Soon: func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 30*time.Second)
		},
		List: func(context.Context, string, int) ([]segment.Tag, error) {
			return []segment.Tag{
				{Name: "a", MaxID: 5000}, {Name: "bounded", MaxID: 10, Rules: segment.Rules{Max: 99}},
				{Name: "deleted", MaxID: 10, Disabled: true, Rules: segment.Rules{Max: 99}},
				{Name: "full", MaxID: 1<<40 - 1},
			}, nil
		},
		Agree: func(Plan) error { *asked++; return nil },
	}
	return o, m, asked
}

func TestAResumeBeginsAnEraAboveAllThatIsKnown(t *testing.T) {
	wentBack := secondEra(era.Incident{Cause: era.WentBack, Need: 500, Eras: era.Offsets{"lost": 7_000_000}})
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
				o, m, asked := operator(t, tc.id, tc.words)
				before := m.identity.Revision
				began := time.Now()
				p, err := o.Run()
				if tc.says != "" {
					if !errors.As(err, new(ChoicesError)) || !strings.Contains(err.Error(), tc.says) {
						t.Errorf("%v, want %q", err, tc.says)
					}
					if m.identity.Revision != before {
						t.Error("the identity was changed")
					}
					return
				}
				id := m.read(t)
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
		o, m, asked := operator(t, &id, Choices{DryRun: true, Bump: new(int64(1 << 31))})
		p, err := o.Run()
		if err != nil || !slices.Equal(p.Undecided, []string{"bounded", "full"}) || *asked > 0 || p.Outcome != "" ||
			!slices.Equal(p.Wide, []string{"a: 5000 -> 2147488648, beyond 2^31"}) || m.identity.Revision != 1 {
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
		o, m, _ := operator(t, &stopped, Choices{})
		o.Agree = func(Plan) error { return errors.New("no") }
		_, err := o.Run()
		if err == nil || !strings.Contains(err.Error(), "not resumed: no") || m.identity.Revision != 1 {
			t.Errorf("not agreed: %v", err)
		}
		o.Agree = func(Plan) error { // another operator is faster
			next, err := stopped.Resume(1, 0, time.Time{})
			m.identity = buckets.Entry{Key: era.Key, Value: next.Encode(), Revision: 2}
			return err
		}
		o.agreed = ""
		if p, err := o.Run(); err != nil || p.Outcome != InOrder || m.identity.Revision != 2 {
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
			o, m, asked := operator(t, &id, Choices{})
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
					stopped, reply["eras"] = time.Now(), era.Offsets{"theirs": 5_000_000}
				case c.Op == "marks" && c.After == "":
					var page []Mark
					for _, tag := range slices.Sorted(maps.Keys(marks)) {
						page = append(page, Mark{Tag: tag, Mark: marks[tag]})
					}
					reply["marks"] = page
				}
				answer, err := json.Marshal(reply)
				hear(answer)
				return err
			}
			p, err := o.Run()
			if id = m.read(t); err != nil || !id.IsOf(there) || id.Offset() != offset || *asked != 1 {
				t.Errorf("%+v, %v, asked %d times, want the offset %d: %+v", id, err, *asked, offset, p)
			}
			if time.Since(stopped) < draining {
				t.Errorf("it resumed %v after the other one was stopped", time.Since(stopped))
			}
		})
	}
}
