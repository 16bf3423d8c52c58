package workerid

// An Alarm is a kind of event that an operator should look at.
type Alarm string

// The kinds of alarm. Each is raised once per event.
const (
	// ClockBehind: the own clock is behind what this worker reported or issued
	// before. It refuses until the clock has caught up, or takes another number.
	ClockBehind Alarm = "clock-behind"
	// ClockSkew: the own clock differs from the others'. It refuses until it
	// does not.
	ClockSkew Alarm = "clock-skew"
	// ClockStep: the own clock was set while running.
	ClockStep Alarm = "clock-step"
	// NumberLost: somebody else has the number, or its record is gone.
	NumberLost Alarm = "number-lost"
	// NumbersExhausted: no number is free.
	NumbersExhausted Alarm = "numbers-exhausted"
	// StateFile: the state file is ignored, or cannot be written.
	StateFile Alarm = "state-file"
	// TimeEnds: the time field of the layout is full soon.
	TimeEnds Alarm = "time-ends"
)

// An alarms remembers which conditions last, so that each is told once. Only
// the goroutine of Keeper.Run uses it.
type alarms struct {
	raise func(kind Alarm, message string)
	on    map[Alarm]bool
}

// set tells of a condition when it begins.
func (a *alarms) set(kind Alarm, message string) {
	if !a.on[kind] {
		a.on[kind] = true
		a.raise(kind, message)
	}
}

// clear says that a condition is over.
func (a *alarms) clear(kind Alarm) { delete(a.on, kind) }
