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
	_, err := s.set(ctx, limitPrefix+tag, policy.LevelLimits, func(old []byte) (value []byte, err error) {
		l := policy.Limit{}
		if err := read(old, &l); err != nil {
			return nil, err
		}
		change(&l)
		return merge(old, l, "max_batch", "rate")
	})
	return err
}

// SetThrottle changes what is throttled for all workers, and returns it. See worker.Settings.
func (s *Settings) SetThrottle(ctx context.Context, change func(*policy.Throttle)) (t policy.Throttle, err error) {
	_, err = s.set(ctx, throttleKey, policy.LevelLimits, func(old []byte) (value []byte, err error) {
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

// set changes an entry by a compare-and-set, tells all workers, which must be of a level, and returns its revision.
// Where the lock of another change is lost often, ctx ends it.
func (s *Settings) set(
	ctx context.Context, key string, level int, change func(old []byte) ([]byte, error),
) (revision uint64, err error) {
	if err := s.prepare(ctx, level); err != nil {
		return 0, err
	}
	for {
		e, err := s.cfg.Bucket.Get(ctx, key)
		if errors.Is(err, buckets.ErrNoKey) {
			e, err = buckets.Entry{Key: key, Value: []byte("{}")}, nil
		}
		if err != nil {
			return 0, away(err)
		}
		value, err := change(e.Value)
		if _, refused := errors.AsType[*subjects.Error](err); refused {
			return 0, err
		}
		if err != nil { // damaged: what is set now takes its place
			if value, err = change([]byte("{}")); err != nil {
				return 0, err
			}
		}
		e.Value = value
		if e.Revision == 0 {
			e.Revision, err = s.cfg.Bucket.Create(ctx, key, value)
		} else {
			e.Revision, err = s.cfg.Bucket.Update(ctx, key, value, e.Revision)
		}
		if errors.Is(err, buckets.ErrRevision) || errors.Is(err, buckets.ErrKeyExists) {
			continue
		}
		if err != nil {
			return 0, err
		}
		s.take(0, e)
		s.announce(key)
		return e.Revision, nil
	}
}

// announce lets all workers, this one included, read a setting again.
func (s *Settings) announce(key string) {
	if err := s.cfg.Conn.Publish(s.cfg.Namespace.SettingsChanged(), []byte(key)); err != nil {
		s.cfg.Log.Warn("a changed setting was not announced; other workers see it at their next poll",
			"key", key, "error", err)
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

// prepare makes sure that every worker honours what is set next, by its level, and knows how many there are: before the
// first rate.
func (s *Settings) prepare(ctx context.Context, level int) error {
	raised := s.cfg.Marks == nil || s.cfg.Marks.Level() >= level
	if raised && (s.cfg.Gate.Counts() || level > policy.LevelLimits) {
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
	if err := olderAmong(answers, live, level); err != nil {
		return err
	}
	s.tellCount(answers)
	if raised {
		return nil
	}
	if err := s.cfg.Marks.RaiseLevel(ctx, level); err != nil {
		return away(err)
	}
	s.cfg.Log.Info(needs[level] + " are in use from now on: workers of before do not start any more")
	return nil
}

// needs is what a level is needed for.
var needs = map[int]string{policy.LevelLimits: "limits", policy.LevelOrder: "strict tags"}

// olderAmong returns an error if a worker is live that would not honour the settings, or may be one.
func olderAmong(answers []answer, live []string, level int) error {
	answered := make(map[string]bool, len(answers))
	for _, a := range answers {
		answered[a.instance] = true
		if a.level < level {
			return notYet(a.instance, "is of a version without "+needs[level], "upgrade or stop it")
		}
	}
	for _, name := range live {
		if !answered[name] {
			return notYet(name, "does not answer, and may be of a version without "+needs[level],
				"wait until it answers, or until its heartbeat has expired")
		}
	}
	return nil
}

func notYet(name, why, do string) error {
	return subjects.Errorf(subjects.Unavailable, "worker %.100s %s, so nothing was changed: %s, then repeat",
		printable(fmt.Sprintf("%q", name)), why, do)
}
