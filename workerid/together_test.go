package workerid

import (
	"log/slog"
	"testing"
)

// A heartbeat that does all at once extends no window: the deployment was not read before its record.
func TestAHeartbeatWithoutRenewalWritesNoRecord(t *testing.T) {
	for _, brief := range []bool{false, true} {
		s, of := newStub()
		c := opened(t, of)
		c.deployment = s.deployment
		h := &holder{claim: c, log: slog.New(slog.DiscardHandler)}
		if putErr, err := h.concurrently(t.Context(), brief); putErr != nil || err != nil || len(s.heartbeats) != 1 {
			t.Errorf("brief %t: %v, %v, %d heartbeats", brief, putErr, err, len(s.heartbeats))
		}
		r := s.records[1]
		r.Token = c.series.next() // of a write whose acknowledgement was lost
		r.Revision++
		s.records[1] = r
		if _, err := h.concurrently(t.Context(), brief); err == nil || isFatal(err) {
			t.Errorf("brief %t: %v, want a trouble that the next heartbeat mends", brief, err)
		}
		if now := s.records[1]; now != r || c.until.Load() != r.Until {
			t.Errorf("brief %t: a record was written beside the reading of the deployment: %+v", brief, now)
		}
	}
}
