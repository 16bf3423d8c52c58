package lineage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/registry/era"
)

// A finding says how the registry contradicts what a worker remembers. A check that returns one stops the registry.
type finding struct {
	cause era.Cause
	why   string
	need  int64  // by how much a mark was too low; 0 if it is not known
	era   string // the era of an entry that the registry lacks; "" for none
	// other is the ID of a second registry, and unused says that this one was never used: see [era.Incident].
	other  string
	unused bool
	// confirm proves by a compare-and-set that the entry read is current; nil if the incident's write proves it.
	confirm func(context.Context) error
}

func (f *finding) Error() string { return fmt.Sprintf("lineage: %s: %s", f.cause, f.why) }

// reason returns why the registry is stopped, and whether snowflakes are, too.
func (f *finding) reason() (why error, all bool) {
	return fmt.Errorf("%w: %s: %s; run `natsid resume`", ErrStopped, f.cause, f.why), f.other != ""
}

// ofIncident is finding.reason for an open incident: the stop of all workers that some worker has written into the
// identity, the entry that describes the registry.
func ofIncident(in *era.Incident) (why error, all bool) {
	return (&finding{cause: in.Cause, why: in.Why(), other: in.Other}).reason()
}

// find compares the identity (the entry that describes the registry) that a check has read with what the worker
// remembers; nil if they agree. A finding is not yet a proof, since a deposed leader shows old entries. It is proved
// once the bucket acknowledges a compare-and-set that adds an incident to the identity as it was read.
func find(m *memory, v *view) *finding {
	switch made := v.stream.Created; {
	case v.unfit != nil: // first, as unfit settings explain missing entries
		return &finding{cause: era.Exposed, why: v.unfit.Error()}
	case errors.Is(v.missing, era.ErrNoIdentity):
		return &finding{cause: era.Lost, why: "the identity of the bucket of marks is gone: the bucket was purged, " +
			"or deleted and made again"}
	case v.missing != nil:
		return &finding{cause: era.Lost, why: v.missing.Error()}
	case m.Registry != "" && !v.id.IsOf(m.Registry):
		return &finding{cause: era.WentBack, why: fmt.Sprintf("the bucket of marks holds registry %s, and this worker "+
			"has loaded from registry %s", v.id.Registry, m.Registry)}
	case !made.IsZero() && !isOne(made, v.id.Created):
		return &finding{cause: era.WentBack, why: fmt.Sprintf("the stream of the marks was made at %s, "+
			"and its identity says %s: it was restored from a backup",
			made.UTC().Format(time.RFC3339), v.id.Created.UTC().Format(time.RFC3339))}
	case !v.id.Offsets.Has(m.Eras): //mutant:era-proof
		return &finding{cause: era.WentBack, why: "the identity of the bucket lacks an era that this worker knows"}
	case m.copied:
		return &finding{cause: era.WentBack, why: "the data directory, in which the marks are too, is a " +
			"copy or was restored"}
	}
	return nil
}

// isOne reports whether two creation times can be of one stream. Servers of a cluster may give different times: after
// a restore the leader gives the time of the restore, and the others the time at which they were given the stream.
func isOne(a, b time.Time) bool { return a.Sub(b).Abs() < time.Minute }

// An ownership says who wrote the entry of a worker's own key, the key that only this worker writes.
type ownership int

const (
	mine      ownership = iota // the entry is as this worker wrote it last
	landed                     // the entry is this worker's write whose outcome was unknown
	unwritten                  // this worker has not written the key yet, and another entry is there
	taken                      // another worker took the key, or an earlier process went on after its journal failed
	foreign                    // not this worker's last write, or gone: the bucket went back
)

// own compares the entry of the own key, which only this worker writes, with what the worker remembers.
//
// Law: any entry but this worker's last write shows that the bucket went back, even at a higher revision: it may be
// restored from a newer backup. If a write had no answer, an entry with its token counts as that write only at a
// revision above all that were known when it was sent; at a lower one the entry is from before a restore.
func (m *memory) own(o *ownEntry, revision uint64) ownership {
	switch {
	case o != nil && o.Token == m.Written.Token && revision == m.Written.Revision: //mutant:mine
		return mine
	case o != nil && o.Token == m.Flight.Token && m.Flight.Token != "" && revision > m.Flight.Highest: //mutant:flight
		return landed
	case m.Written.Token == "":
		return unwritten
	case o != nil && !m.sent(o.Token) && slices.ContainsFunc(o.Taken, m.sent):
		return taken
	}
	return foreign
}

// sent reports whether a token is that of the last own write known to have landed, or of the one without an answer.
func (m *memory) sent(token string) bool {
	return token != "" && (token == m.Written.Token || token == m.Flight.Token)
}
