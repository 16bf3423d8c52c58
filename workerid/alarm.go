package workerid

// An Alarm is a kind of event that an operator must look at.
type Alarm string

// The kinds of alarm. Each is raised once per event.
const (
	// ClockBehind: the clock is behind a time that this worker issued or reported. The worker waits until the clock has
	// caught up, or acquires another number.
	ClockBehind Alarm = "clock-behind"
	// ClockSkew: the clock is too far from the other workers'. Nothing is issued until they agree.
	ClockSkew Alarm = "clock-skew"
	// ClockStep: the clock was set while this worker ran.
	ClockStep Alarm = "clock-step"
	// NumberLost: another worker has the number, or its record is gone.
	NumberLost Alarm = "number-lost"
	// NumbersExhausted: no worker number is free.
	NumbersExhausted Alarm = "numbers-exhausted"
	// RegistryConflict: the registry's deployment is missing, damaged or of another layout, and nothing is issued; or a
	// record is damaged, and its number not used.
	RegistryConflict Alarm = "registry-conflict"
	// StateFile: the state file is ignored, or cannot be written.
	StateFile Alarm = "state-file"
	// TimeEnds: the time field of the layout will be full within five years.
	TimeEnds Alarm = "time-ends"
)

// An alarms raises each alarm once per event: it remembers which conditions are present. Only the goroutine of
// Keeper.Run uses it.
type alarms struct {
	raise func(kind Alarm, message string)
	on    map[Alarm]bool
}

// set raises an alarm when its condition begins.
func (a *alarms) set(kind Alarm, message string) {
	if !a.on[kind] {
		a.on[kind] = true
		a.raise(kind, message)
	}
}

// clear records that a condition has ended: its next occurrence raises an alarm again.
func (a *alarms) clear(kind Alarm) { delete(a.on, kind) }
