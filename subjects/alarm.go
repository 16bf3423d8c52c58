package subjects

import "time"

// An Alarm is the kind of an event that operators should look at: the last
// token of the subject that it is published on. Kinds are part of the wire
// contract.
type Alarm string

// The kinds: what happened, and what to do about it.
const (
	AlarmClockBehind      Alarm = "clock-behind"      // the clock is behind what this worker issued or reported before: see who sets it back; snowflakes wait for it, or come under another number (--on-clock-step)
	AlarmClockSkew        Alarm = "clock-skew"        // the clock differs too much from the other workers': synchronize it; snowflakes wait for it
	AlarmClockStep        Alarm = "clock-step"        // the clock was set, or the machine slept: find out who sets it in steps; snowflakes wait until it is compared if the step was large
	AlarmNumberLost       Alarm = "number-lost"       // the worker number is another's now or its record is gone, and a new number is taken: look for a clone, or a registry that lost its state
	AlarmNumbersExhausted Alarm = "numbers-exhausted" // all worker numbers are in use or blocked: see `natsid workers`, and stop workers
	AlarmStateFile        Alarm = "state-file"        // the state file was ignored, or cannot be written and is done without: mend the data directory and start the worker anew; after a crash it takes another number
	AlarmStoreWentBack    Alarm = "store-went-back"   // the database lost commits, and no ID repeats, but its other data may be lost: look at its failover or backup; or JetStream lost the marks: make the tags again above all that was loaded
	AlarmMarkUnreachable  Alarm = "mark-unreachable"  // the marks that guard the database do not answer, so nothing is loaded: bring JetStream back
	AlarmTagConflict      Alarm = "tag-conflict"      // a tag is not served, since its row contradicts its mark or another row: mend the row
	AlarmTimeEnds         Alarm = "time-ends"         // the time field of the layout is nearly full: plan for a new layout
)

// Alarms are all kinds.
var Alarms = []Alarm{
	AlarmClockBehind, AlarmClockSkew, AlarmClockStep, AlarmNumberLost, AlarmNumbersExhausted,
	AlarmStateFile, AlarmStoreWentBack, AlarmMarkUnreachable, AlarmTagConflict, AlarmTimeEnds,
}

// An AlarmEvent is an alarm as it is published, in JSON. It may be published
// more than once, with the same time.
type AlarmEvent struct {
	Kind     Alarm     `json:"kind"`
	Instance string    `json:"instance"` // the worker's name
	Message  string    `json:"message"`  // for people
	Time     time.Time `json:"time"`     // of the event, not of its publication
}
