package segment

import (
	"fmt"
	"math"
	"time"
)

// A Change is a change of a tag. Fields at their zero value leave the tag as it is; the zero Change changes nothing.
type Change struct {
	Step        int64   // the tag's configured step from now on, 1..[MaxStep]
	Description *string // nil leaves it
	// MaxID raises the mark: no ID below it is issued afterwards.
	MaxID int64
	// RaiseBy raises the mark by this many IDs, at least 1, above its present value. MaxID and RaiseBy exclude each
	// other.
	RaiseBy int64
	// Force allows a raise by more than [MaxRaise].
	Force bool
	// Rules, if set, returns the new rules, given the present ones. It cannot change the order, loose or strict: that
	// is fixed.
	Rules func(Rules) Rules
}

// MaxRaise is the most by which a mark is raised without [Change.Force], so that a typing error does not use up a tag
// for good. A new tag may start anywhere.
const MaxRaise = 1 << 40

// Raises reports whether the change raises the mark of the tag: the first ID that no worker has loaded.
func (c Change) Raises() bool { return c.MaxID != 0 || c.RaiseBy != 0 }

// Apply returns t with the change applied, in a store whose marks (the first IDs that no worker has loaded) go up to
// limit. Fields of t that the caller does not know may be zero. All stores compute raised marks by Apply.
//
// Law: the mark never goes down. A raised mark becomes the tag's Least: a worker that sees it discards the loaded IDs
// below it.
func (c Change) Apply(t Tag, limit int64) (Tag, error) {
	if err := c.validate(); err != nil {
		return t, err
	}
	if c.Step != 0 {
		t.Step = c.Step
	}
	if c.Description != nil {
		t.Description = *c.Description
	}
	if c.Rules != nil {
		if err := c.changeRules(&t); err != nil {
			return t, err
		}
	}
	if !c.Raises() || c.MaxID != 0 && c.MaxID == t.Least && !t.Undecided {
		return t, nil // the same change was applied before
	}
	if t.Undecided && c.MaxID == 0 {
		return t, ruleError("nobody knows the mark of the tag: say with max_id where it goes on, above all its IDs")
	}
	raised := c.MaxID
	if c.RaiseBy != 0 {
		raised = t.MaxID + min(c.RaiseBy, math.MaxInt64-t.MaxID)
	}
	switch {
	case raised < t.MaxID: //mutant:raise
		return t, ruleError("next_id is %d and only rises: give at least that, or raise_by", t.MaxID)
	case raised > limit || c.RaiseBy > limit-t.MaxID:
		return t, ruleError("next_id is %d, and the store holds at most %d: raise it by less", t.MaxID, limit)
	case !c.Force && !t.Undecided && raised-t.MaxID > MaxRaise:
		return t, ruleError("next_id is %d; this would skip more than %d IDs for good: raise it by less, or, if you "+
			"mean it, update the tag with force", t.MaxID, int64(MaxRaise))
	}
	if err := t.Rules.fits(raised-1, t.MaxID, time.Now()); err != nil {
		return t, err
	}
	t.MaxID, t.Least, t.Undecided = raised, raised, false
	return t, nil
}

func (c Change) changeRules(t *Tag) error {
	rules, err := c.Rules(t.Rules).InOrderOf(t.Rules)
	if err == nil {
		err = rules.Validate()
	}
	if err == nil && rules.Period == "" {
		err = rules.fits(t.MaxID-1, t.MaxID, time.Now())
	}
	if err == nil {
		t.Rules = rules
	}
	return err
}

// Revive returns the deleted tag t as created again: with step, description, rules and start of by, the requested tag,
// and with its own order, loose or strict.
//
// Law: the mark never goes down, and becomes the tag's Least: no ID loaded before the tag was deleted is issued
// afterwards.
func (t Tag) Revive(by Tag, limit int64) (Tag, error) {
	revived := Change{Step: by.Step, Description: &by.Description}
	if by.MaxID > t.MaxID || t.Undecided {
		revived.MaxID = by.MaxID
	}
	revived.Rules = func(Rules) Rules { return by.Rules }
	again, err := revived.Apply(t, limit)
	if err == nil {
		id := again.MaxID // this ID is left
		if again.Rules.Period != "" {
			id-- // the next period has IDs
		}
		err = again.Rules.fits(id, again.MaxID, time.Now())
	}
	again.Least, again.Disabled = again.MaxID, false //mutant:revived
	return again, err
}

func (c Change) validate() error {
	if c.Step < 0 || c.Step > MaxStep {
		return fmt.Errorf("%w: step %d, want 1..%d", ErrInvalid, c.Step, int64(MaxStep))
	}
	if c.MaxID < 0 || c.RaiseBy < 0 || c.MaxID != 0 && c.RaiseBy != 0 {
		return fmt.Errorf("%w: max_id %d, raise_by %d, want one of them, at least 1", ErrInvalid, c.MaxID, c.RaiseBy)
	}
	return nil
}
