package subjects

import "time"

// An Alarm is the kind of an event that an operator must look at: the last
// token of the subject on which it is published, and the label kind of the
// metric natsid_alarms_total. [Alarms] explains each kind.
type Alarm string

// The kinds of alarm. They are part of the wire contract: a kind is neither
// renamed nor removed.
const (
	AlarmClockBehind      Alarm = "clock-behind"
	AlarmClockSkew        Alarm = "clock-skew"
	AlarmClockStep        Alarm = "clock-step"
	AlarmNumberLost       Alarm = "number-lost"
	AlarmNumbersExhausted Alarm = "numbers-exhausted"
	AlarmStateFile        Alarm = "state-file"
	AlarmStoreWentBack    Alarm = "store-went-back"
	AlarmTimeEnds         Alarm = "time-ends"
	AlarmMarkUnreachable  Alarm = "mark-unreachable" // reserved
	AlarmTagConflict      Alarm = "tag-conflict"     // reserved
)

// An AlarmInfo explains one kind of alarm to an operator. Happened and Do are
// clauses without a capital at the start or a period at the end.
type AlarmInfo struct {
	Kind     Alarm
	Happened string
	Do       string
	// Reserved says that no worker raises the kind: its name is taken, and its
	// metric exists and stays 0.
	Reserved bool
}

// Alarms returns every kind, and what an operator does about it. The slice is
// the caller's.
func Alarms() []AlarmInfo {
	return []AlarmInfo{
		{
			Kind:     AlarmClockBehind,
			Happened: "this worker's clock is behind the time of its own last IDs or report; it issues no snowflakes meanwhile",
			Do: "if the clock is right now, nothing: the worker waits until the clock has caught up; " +
				"`--on-clock-step reclaim` takes another worker number instead of waiting",
		},
		{
			Kind:     AlarmClockSkew,
			Happened: "this worker's clock differs too much from the others' or JetStream's; it issues no snowflakes meanwhile",
			Do:       "synchronize the clock with NTP; if this is the only worker, check the clock of the JetStream machine too",
		},
		{
			Kind: AlarmClockStep,
			Happened: "this worker's clock was set, or the machine slept; " +
				"after a large step it issues no snowflakes until its clock has been compared with the others'",
			Do: "find out what sets the clock in steps, and let NTP slew it instead",
		},
		{
			Kind:     AlarmNumberLost,
			Happened: "the record of the worker number belongs to another worker or is gone; this worker acquires a new number",
			Do:       "look for a copied machine or data directory, or for a JetStream that was wiped or restored from a backup",
		},
		{
			Kind:     AlarmNumbersExhausted,
			Happened: "every worker number is in use or blocked; this worker issues no snowflakes",
			Do:       "see `natsid workers` for who has each number and until when; stop workers, or plan a wider layout",
		},
		{
			Kind:     AlarmStateFile,
			Happened: "`worker.json` is damaged, was copied here, or cannot be written; the worker goes on under another number",
			Do:       "if it cannot be written, repair the data directory and restart the worker: until then a crash costs the number",
		},
		{
			Kind:     AlarmStoreWentBack,
			Happened: "MySQL lost commits, so its other data may be lost, but no ID repeats; or JetStream lost the marks of the tags",
			Do: "MySQL: check the failover or the backup; marks lost without MySQL: " +
				"create each tag again, with a start far above every ID in use",
		},
		{
			Kind:     AlarmTimeEnds,
			Happened: "the time field of the layout is full within five years; no snowflakes are issued after that",
			Do:       "plan a new layout with `natsid layout`, in a namespace of its own",
		},
		{
			Kind:     AlarmMarkUnreachable,
			Happened: "reserved, not raised: while the marks do not answer, loads fail and `/readyz` says why",
			Do:       "nothing",
			Reserved: true,
		},
		{
			Kind:     AlarmTagConflict,
			Happened: "reserved, not raised: requests for a tag whose row cannot be used get 503, and `natsid tag list` shows why",
			Do:       "nothing",
			Reserved: true,
		},
	}
}

// An AlarmEvent is an alarm as it is published, in JSON, on
// [Namespace.Alarm]. One event may be published more than once, always with
// the same time.
type AlarmEvent struct {
	Kind     Alarm     `json:"kind"`
	Instance string    `json:"instance"` // name of the worker
	Message  string    `json:"message"`  // text for an operator
	Time     time.Time `json:"time"`     // when the event happened, by the worker's clock
}
