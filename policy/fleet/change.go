package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/policy"
	"github.com/natsid/natsid/subjects"
)

// SetLimit changes the limit of a tag for all workers. See worker.Settings.
func (s *Settings) SetLimit(ctx context.Context, tag string, change func(*policy.Limit)) error {
	return s.set(ctx, limitPrefix+tag, func(old []byte) (value []byte, err error) {
		l := policy.Limit{}
		if err := read(old, &l); err != nil {
			return nil, err
		}
		change(&l)
		return merge(old, l, "max_batch", "rate")
	})
}

// SetThrottle changes what is throttled for all workers, and returns it. See worker.Settings.
func (s *Settings) SetThrottle(ctx context.Context, change func(*policy.Throttle)) (t policy.Throttle, err error) {
	err = s.set(ctx, throttleKey, func(old []byte) (value []byte, err error) {
		t = policy.Throttle{}
		if err := read(old, &t); err != nil {
			return nil, err
		}
		if change(&t); len(t.Tags) > policy.MaxThrottled {
			return nil, subjects.Errorf(subjects.BadRequest,
				"%d tags are throttled already: throttle all, or end some", policy.MaxThrottled)
		}
		return merge(old, t, "all", "tags")
	})
	return t, err
}

// merge returns old with the fields of v, and all fields that this natsid does not know: a newer one may have set them.
func merge(old []byte, v any, fields ...string) ([]byte, error) {
	all := make(map[string]json.RawMessage)
	if err := json.Unmarshal(old, &all); err != nil {
		return nil, err
	}
	for _, f := range fields {
		maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool { return strings.EqualFold(name, f) })
	}
	value, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(value, &all)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

// set changes an entry by a compare-and-set, and tells all workers. Where the lock of another change is lost often,
// ctx ends it.
func (s *Settings) set(ctx context.Context, key string, change func(old []byte) ([]byte, error)) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	for {
		e, err := s.kv.Get(ctx, key)
		if errors.Is(err, buckets.ErrNoKey) {
			e, err = buckets.Entry{Key: key, Value: []byte("{}")}, nil
		}
		if err != nil {
			return away(err)
		}
		value, err := change(e.Value)
		if _, refused := errors.AsType[*subjects.Error](err); refused {
			return err
		}
		if err != nil { // damaged: what is set now takes its place
			if value, err = change([]byte("{}")); err != nil {
				return err
			}
		}
		e.Value = value
		if e.Revision == 0 {
			e.Revision, err = s.kv.Create(ctx, key, value)
		} else {
			e.Revision, err = s.kv.Update(ctx, key, value, e.Revision)
		}
		if errors.Is(err, buckets.ErrRevision) || errors.Is(err, buckets.ErrKeyExists) {
			continue
		}
		if err != nil {
			return err
		}
		s.learn(e)
		if err := s.cfg.Conn.Publish(s.cfg.Namespace.SettingsChanged(), []byte(key)); err != nil {
			s.cfg.Log.Warn("a changed setting was not announced; other workers see it at their next poll",
				"key", key, "error", err)
		}
		return nil
	}
}

// away says that nothing was changed.
func away(err error) error {
	return subjects.Errorf(subjects.Unavailable,
		"the settings cannot be reached, so nothing was changed: retry (%.200s)", printable(err.Error()))
}

func printable(text string) string {
	b := []byte(text)
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = ' '
		}
	}
	return string(b)
}

// askFor is how long workers have to answer a question that a request waits for.
const askFor = 700 * time.Millisecond

// prepare makes sure that every worker honours what is set next, and knows how many there are: before the first rate.
func (s *Settings) prepare(ctx context.Context) error {
	raised := s.cfg.Marks == nil || s.cfg.Marks.Level() >= policy.LevelLimits
	if raised && s.cfg.Gate.Counts() {
		return nil
	}
	live, err := s.cfg.Live(ctx)
	if err != nil {
		return away(err)
	}
	answers, err := s.ask(ctx, askFor, live)
	if err != nil {
		return away(err)
	}
	if err := olderAmong(answers, live); err != nil {
		return err
	}
	s.tellCount(answers)
	if raised {
		return nil
	}
	if err := s.cfg.Marks.RaiseLevel(ctx, policy.LevelLimits); err != nil {
		return away(err)
	}
	s.cfg.Log.Info("limits are in use from now on: workers of before do not start any more")
	return nil
}

// olderAmong returns an error if a worker is live that would not honour the settings, or may be one.
func olderAmong(answers []answer, live []string) error {
	answered := make(map[string]bool, len(answers))
	for _, a := range answers {
		answered[a.instance] = true
		if a.level < policy.LevelLimits {
			return notYet(a.instance, "is of a version without limits", "upgrade or stop it")
		}
	}
	for _, name := range live {
		if !answered[name] {
			return notYet(name, "does not answer, and may be of a version without limits",
				"wait until it answers, or until its heartbeat has expired")
		}
	}
	return nil
}

func notYet(name, why, do string) error {
	return subjects.Errorf(subjects.Unavailable, "worker %.100s %s, so nothing was changed: %s, then repeat",
		printable(fmt.Sprintf("%q", name)), why, do)
}
