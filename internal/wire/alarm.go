package wire

import (
	"slices"
	"time"
)

// An Alarm is the kind of an event that an operator must look at. It is the last token of the subject on which the
// event is published, and the label kind of the metric natsid_alarms_total. [Alarms] explains each kind.
type Alarm string

// The kinds of alarm. They are part of the wire contract, so no kind is ever renamed.
const (
	AlarmBucketUnfit      Alarm = "bucket-unfit"
	AlarmClockBehind      Alarm = "clock-behind"
	AlarmClockSkew        Alarm = "clock-skew"
	AlarmClockStep        Alarm = "clock-step"
	AlarmGrantsLost       Alarm = "grants-lost"
	AlarmMarksLost        Alarm = "marks-lost"
	AlarmMarksWentBack    Alarm = "marks-went-back"
	AlarmNumberLost       Alarm = "number-lost"
	AlarmNumbersExhausted Alarm = "numbers-exhausted"
	AlarmOverload         Alarm = "overload"
	AlarmRegistryConflict Alarm = "registry-conflict"
	AlarmSecondRegistry   Alarm = "second-registry"
	AlarmStateFile        Alarm = "state-file"
	AlarmTableWentBack    Alarm = "table-went-back"
	AlarmTagFillsUp       Alarm = "tag-fills-up"
	AlarmTagUndecided     Alarm = "tag-undecided"
	AlarmTimeEnds         Alarm = "time-ends"
)

// An AlarmInfo explains one kind of alarm to an operator. Happened and Do are clauses without a capital at the start or
// a period at the end.
type AlarmInfo struct {
	Kind     Alarm
	Happened string
	Do       string
}

// Alarms returns an explanation of every kind. The slice is the caller's.
func Alarms() []AlarmInfo { return slices.Clone(alarms) }

// Remedy returns what an operator does about an alarm of this kind; "" for an unknown kind.
func (a Alarm) Remedy() string {
	for _, info := range alarms {
		if info.Kind == a {
			return info.Do
		}
	}
	return ""
}

var alarms = []AlarmInfo{
	{
		Kind: AlarmBucketUnfit,
		Happened: "a bucket was given settings with which it forgets entries, or takes what others write; " +
			"of the marks: all workers have stopped segments; of the worker numbers: none is renewed",
		Do: "correct the settings that the message names with `nats stream edit`; " +
			"if segments are stopped, run `natsid resume`",
	},
	{
		Kind: AlarmClockBehind,
		Happened: "this worker's clock is behind its own last IDs or heartbeat; it issues no snowflakes until the " +
			"clock has caught up or, within seconds, another number is acquired",
		Do: "find out what sets the clock in steps, and let NTP slew it instead",
	},
	{
		Kind: AlarmClockSkew,
		Happened: "this worker's clock differs too much from the other workers' and JetStream's; " +
			"it issues no snowflakes until the clock is right",
		Do: "synchronize the clock with NTP; without other workers, check JetStream's clock too",
	},
	{
		Kind: AlarmClockStep,
		Happened: "this worker's clock was set, or the machine slept; " +
			"after a large step it issues no snowflakes until it has compared clocks",
		Do: "find out what sets the clock in steps, and let NTP slew it instead",
	},
	{
		Kind: AlarmGrantsLost,
		Happened: "the stream of grants is full, may not be written, or has no leader: `natsid explain` and " +
			"`natsid audit` may lack IDs, which are issued as ever",
		Do: "make room, or give the worker the rights that `natsid permissions` prints; or set `--grants off`",
	},
	{
		Kind: AlarmMarksLost,
		Happened: "the bucket of the marks was deleted, purged or made again, or its identity is damaged; " +
			"all workers have stopped segments",
		Do: "run `natsid resume --bump N`, N above every ID that was ever used, if it asks for that",
	},
	{
		Kind: AlarmMarksWentBack,
		Happened: "the registry in JetStream is in an earlier state, as after a restored backup or a lost disk; " +
			"all workers have stopped segments",
		Do: "find out what was restored, and run `natsid resume`",
	},
	{
		Kind: AlarmNumberLost,
		Happened: "the record of the worker number is another worker's now, or gone; " +
			"this worker acquires another number",
		Do: "look for a copied machine or data directory, or a wiped or restored JetStream",
	},
	{
		Kind:     AlarmNumbersExhausted,
		Happened: "every worker number is in use or blocked; this worker issues no snowflakes",
		Do:       "see `natsid workers` for who has each until when; stop workers, or plan a wider layout",
	},
	{
		Kind: AlarmOverload,
		Happened: "for a second or longer, requests have arrived faster than this worker answers them; " +
			"it leaves the queue group while it is late",
		Do: "start more workers or give them more CPU time; callers that get \"no responders\" should back off",
	},
	{
		Kind: AlarmRegistryConflict,
		Happened: "the key `deployment`, with layout and epoch of snowflakes, is missing, damaged or another one: " +
			"this worker issues no snowflakes; or a worker number's record is damaged, and left alone",
		Do: "read the message: stop the workers of the other layout or epoch, or put the named entry back",
	},
	{
		Kind: AlarmSecondRegistry,
		Happened: "workers behind the same subjects rest on two registries, such as a hub's and a leaf node's; " +
			"both have stopped, except one that `--registry` names",
		Do: "separate the two, or decide with `natsid resume --keep REGISTRY` which one serves",
	},
	{
		Kind: AlarmStateFile,
		Happened: "`worker.json` is damaged, was copied here, or cannot be written: " +
			"the worker acquires another number; or `lineage.json` is damaged or cannot be written",
		Do: "if it cannot be written, repair the directory and restart the worker; until then " +
			"a crash costs its number",
	},
	{
		Kind: AlarmTableWentBack,
		Happened: "MySQL lost commits: natsid repeats no ID, but other data of the database may be lost, " +
			"and Leaf nodes on the table may repeat IDs",
		Do: "check MySQL's failover or backup, and stop Leaf nodes on the table",
	},
	{
		Kind:     AlarmTagFillsUp,
		Happened: "90 % of the numbers of a tag, or of its period, are reserved; or all are, and requests get 410",
		Do: "raise the maximum with `natsid tag update TAG --max N`; where a day has too few numbers, " +
			"find out with `natsid tag stats` who takes most",
	},
	{
		Kind: AlarmTagUndecided,
		Happened: "the registry was resumed, and nobody knows how far a tag was loaded whose numbers end; " +
			"its requests are refused",
		Do: "run `natsid tag update TAG --next-id N`, N above every ID of the tag that was loaded",
	},
	{
		Kind:     AlarmTimeEnds,
		Happened: "the time field of the layout is full within five years; then no snowflake can be issued",
		Do:       "plan a new layout with `natsid layout`, in a namespace of its own",
	},
}

// An AlarmEvent is an alarm as it is published, in JSON, on [AlarmSubject]. One event may be published more than once,
// always with the same time.
type AlarmEvent struct {
	Kind     Alarm     `json:"kind"`
	Instance string    `json:"instance"` // name of the worker
	Message  string    `json:"message"`  // text for an operator
	Time     time.Time `json:"time"`     // when the event happened, by the worker's clock
	// HeldBack is how many alarms of the same kind and object were not published in the minute before this one.
	HeldBack int `json:"held_back,omitempty"`
}
