package app

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/jitter"
	"github.com/natsid/natsid/internal/registry/buckets"
	"github.com/natsid/natsid/subjects"
)

// Bounds of the age and the number of stored alarms; the oldest are dropped first.
const (
	alarmsKeptFor = 30 * 24 * time.Hour
	maxAlarms     = 10_000
)

// unstoredAlarms is how many alarms wait at most while JetStream is out of reach.
const unstoredAlarms = 64

// An alarmLog stores the alarms of all workers, for people: in a bucket, where each has a key of its own. Nothing
// depends on it. It is safe for concurrent use.
type alarmLog struct {
	queue chan subjects.AlarmEvent

	// Used by run, and set before it.
	bucket *buckets.Bucket
	log    *slog.Logger
}

func newAlarmLog() *alarmLog { return &alarmLog{queue: make(chan subjects.AlarmEvent, unstoredAlarms)} }

// on sets where alarms are stored. The bucket is created for the first alarm.
func (l *alarmLog) on(s *storage) {
	l.log = s.cfg.Log
	l.bucket = buckets.New(s.streams, buckets.Config{
		Name: s.cfg.Namespace.AlarmBucket(), Description: "natsid: alarms of the last 30 days, for people",
		TTL: alarmsKeptFor, MaxEntries: maxAlarms, Replicas: s.replicas(), Log: l.log,
	})
}

// add queues an alarm to be stored. It does not block.
func (l *alarmLog) add(e subjects.AlarmEvent) {
	select {
	case l.queue <- e:
	default: // dropped here; the alarm is in the log of the process
	}
}

// run stores alarms until ctx ends, and then those that wait, if JetStream answers within half a second.
func (l *alarmLog) run(ctx context.Context) error {
	for {
		select {
		case e := <-l.queue:
			l.keep(ctx, e)
		case <-ctx.Done():
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 500*time.Millisecond)
			defer cancel()
			for len(l.queue) > 0 && late.Err() == nil {
				_ = l.put(late, <-l.queue) // after an error the alarm is still in the log of the process
			}
			return nil
		}
	}
}

// keep retries to store an alarm until that succeeds or ctx ends.
func (l *alarmLog) keep(ctx context.Context, e subjects.AlarmEvent) {
	pauses := jitter.NewBackoff(time.Second, time.Minute)
	for ctx.Err() == nil {
		attempt, cancel := context.WithTimeout(ctx, openTimeout)
		err := l.put(attempt, e)
		cancel()
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			l.log.Warn("an alarm is not kept for the page yet; trying again", "kind", e.Kind, "error", err)
		}
		_ = jitter.Sleep(ctx, pauses.NextBackOff())
	}
	l.add(e)
}

func (l *alarmLog) put(ctx context.Context, e subjects.AlarmEvent) error {
	body, err := json.Marshal(e)
	if err != nil {
		panic(err) // cannot be: strings and a time
	}
	_, err = l.bucket.Put(ctx, fmt.Sprintf("%d-%s", e.Time.UnixMilli(), rand.Text()[:8]), body)
	return err
}

// KeptAlarms returns the alarms stored in a bucket, the latest first.
func KeptAlarms(ctx context.Context, streams buckets.Streams, bucket string) ([]subjects.AlarmEvent, error) {
	entries, err := streams.List(ctx, bucket, "")
	if err != nil && !errors.Is(err, buckets.ErrNoBucket) { // no alarm was ever raised
		return nil, err
	}
	events := make([]subjects.AlarmEvent, 0, len(entries))
	for _, entry := range entries {
		var e subjects.AlarmEvent
		if !entry.Removed && json.Unmarshal(entry.Value, &e) == nil {
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(x, y subjects.AlarmEvent) int { return y.Time.Compare(x.Time) })
	return events, nil
}
