package app

import (
	"testing"

	"github.com/natsid/natsid/segment/witness"
	"github.com/natsid/natsid/worker"
)

func TestSegmentsWaitForTheFirstCheckOfTheMarks(t *testing.T) {
	for name, c := range map[string]struct {
		witness *witness.Witness
		late    bool
		refused bool // until the check is over
	}{
		"the buckets are open":  {witness: new(witness.Witness), refused: true},
		"JetStream is away":     {witness: new(witness.Witness), late: true},
		"there are no marks":    {},
		"no marks, and no NATS": {late: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := new(refusals)
			s := storage{refusals: r, witness: c.witness, late: c.late}
			s.awaitMarks()
			if refused := r.why(worker.Segment) != nil; refused != c.refused {
				t.Errorf("refused %t, want %t", refused, c.refused)
			}
			if r.why(worker.Snowflake) != nil || r.why(worker.Tags) != nil {
				t.Error("snowflakes and changes of tags do not wait")
			}
			if c.witness != nil {
				s.marksChecked(nil)
			}
			if err := r.why(worker.Segment); err != nil {
				t.Errorf("%v, want no refusal after the check", err)
			}
			<-s.begun
		})
	}
}
