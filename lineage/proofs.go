package lineage

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// A view is what one check has read of the registry.
type view struct {
	id       Identity
	revision uint64 // of the identity; 0 if there is none
	missing  error  // why there is no identity to use; nil if there is one
	// created and unfit are of the bucket's stream, which only some checks look at: created is zero otherwise.
	created time.Time
	unfit   error
}

// A finding says that the registry is not the one that a worker remembers.
type finding struct {
	cause Cause
	why   string
	other string // the second registry, where that is the cause
	// asFound says that the own key is still as the state that was found has it, so that its time is the state's.
	asFound bool
}

// The findings below are suspicions as long as they rest on reads: a leader that was deposed shows old entries. Each
// becomes a proof by an acknowledged compare-and-set on what was read: of the identity, into which the incident is
// written, or of the entry that the finding is about.

// ofSettings finds a stream that may forget or change entries. It comes first: what is missing in it is a consequence.
func ofSettings(_ *memory, v *view) *finding {
	if v.unfit == nil {
		return nil
	}
	return &finding{cause: Exposed, why: v.unfit.Error()}
}

// ofIdentity finds an identity that is missing, damaged, or of another registry.
func ofIdentity(m *memory, v *view) *finding {
	if errors.Is(v.missing, ErrNoIdentity) {
		return &finding{cause: Lost, why: "the identity of the bucket of marks is gone: the bucket was purged, or " +
			"deleted and made again"}
	}
	if v.missing != nil {
		return &finding{cause: Lost, why: v.missing.Error()}
	}
	if m.Registry != "" && m.Registry != v.id.Registry {
		return &finding{cause: WentBack, why: fmt.Sprintf("the bucket of marks holds registry %s, and this worker has "+
			"loaded from registry %s", v.id.Registry, m.Registry)}
	}
	return nil
}

// ofStream finds a stream that was restored.
func ofStream(_ *memory, v *view) *finding {
	if !v.created.IsZero() && !v.created.Equal(v.id.Created) {
		return &finding{cause: WentBack, asFound: true, why: fmt.Sprintf("the stream of the marks was made at %s, "+
			"and its identity says %s: it was restored from a backup",
			v.created.UTC().Format(time.RFC3339), v.id.Created.UTC().Format(time.RFC3339))}
	}
	return nil
}

// ofEra finds a chain that lacks the worker's era: the identity is of another history.
func ofEra(m *memory, v *view) *finding {
	if m.isFresh() || v.id.Knows(m.Era) {
		return nil
	}
	return &finding{cause: WentBack, why: "the identity of the bucket does not know the era in which this worker " +
		"has loaded"}
}

// findings are those of a check, in order.
var findings = []func(*memory, *view) *finding{ofSettings, ofIdentity, ofStream, ofEra}

func find(m *memory, v *view) *finding {
	for _, of := range findings {
		if f := of(m, v); f != nil {
			return f
		}
	}
	return nil
}

// An ownership is what the entry of a worker's own key shows.
type ownership int

const (
	mine      ownership = iota // it is as this worker wrote it last
	landed                     // it is the write whose outcome was unknown
	unwritten                  // this worker has not written the key yet, and another entry is there
	taken                      // another worker took it over from this one
	foreign                    // it is another one, or gone: the bucket went back
)

// own compares the entry of the own key with what the worker remembers.
//
// Law: whatever its revision, another entry than the last one written shows that the bucket went back: a newer backup
// that is put back has higher revisions. A token in flight counts only above the highest revision known when it was
// sent: otherwise it is one of an earlier history.
func (m *memory) own(o *ownKey, revision uint64) ownership {
	switch {
	case o != nil && o.Token == m.Written.Token && revision == m.Written.Revision: //mutant:mine
		return mine
	case o != nil && o.Token == m.Flight.Token && m.Flight.Token != "" && revision > m.Flight.Highest: //mutant:flight
		return landed
	case m.Written.Token == "":
		return unwritten
	case o != nil && m.Volatile && (slices.Contains(o.Taken, m.Written.Token) ||
		m.Flight.Token != "" && slices.Contains(o.Taken, m.Flight.Token)):
		return taken
	}
	return foreign
}
