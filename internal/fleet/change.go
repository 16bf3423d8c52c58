package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"

	"github.com/natsid/natsid/internal/fleet/policy"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/subjects"
)

// SetLimit changes the limit of a tag for all workers. See worker.Settings.
func (s *Settings) SetLimit(ctx context.Context, tag string, change func(*policy.Limit)) error {
	if err := s.count.first(ctx); err != nil {
		return err
	}
	key := limitPrefix + tag
	if tag == "" {
		key = throttleKey
	}
	_, err := s.set(ctx, key, func(old []byte) (value []byte, err error) {
		l := policy.Limit{}
		if err := read(old, &l); err != nil {
			return nil, err
		}
		change(&l)
		return merge(old, l, "max_batch", "rate")
	})
	return err
}

// merge returns old with the fields of v. It keeps fields that this natsid does not know: a newer one may have set
// them.
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

// set changes an entry by a compare-and-set, unless change returns it unchanged, announces the change, and returns
// the revision of the entry. While other changes keep coming first it retries until ctx ends.
func (s *Settings) set(
	ctx context.Context, key string, change func(old []byte) ([]byte, error),
) (revision uint64, err error) {
	for {
		now := s.now()
		e, err := s.cfg.Bucket.Get(ctx, key)
		if errors.Is(err, buckets.ErrNoKey) {
			e, err = buckets.Entry{Key: key, Value: []byte("{}")}, nil
		}
		if err != nil {
			return 0, unreachable(err)
		}
		value, err := change(e.Value)
		if _, refused := errors.AsType[*subjects.Error](err); refused {
			return 0, err
		}
		if err != nil { // the entry is damaged: the new value replaces it
			if value, err = change([]byte("{}")); err != nil {
				return 0, err
			}
		}
		if bytes.Equal(value, e.Value) {
			return e.Revision, nil
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
		s.take(now, 0, e)
		s.announce(key)
		return e.Revision, nil
	}
}

// announce makes all workers, this one included, read a setting again.
func (s *Settings) announce(key string) {
	if err := s.cfg.Conn.Publish(s.cfg.Namespace.SettingsChanged(), []byte(key)); err != nil {
		s.cfg.Log.Warn("a changed setting was not announced; other workers see it at their next poll",
			"key", key, "error", err)
	}
}

// unreachable returns an error which says that nothing was changed.
func unreachable(err error) error {
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
