package workerid

import "errors"

var (
	// ErrConflict is returned when a record's revision is not the expected one.
	ErrConflict = errors.New("workerid: the record was changed")
	// ErrNoRecord is returned when a worker number has no record.
	ErrNoRecord = errors.New("workerid: no record")
	// ErrNoWorker is returned when no worker answers for a number.
	ErrNoWorker = errors.New("workerid: no worker answers")
	// ErrBystander is returned when no worker answers for a number, and a subscriber that receives all such questions
	// does not answer either: the silence proves nothing.
	ErrBystander = errors.New("workerid: no worker answers, and a subscriber hides whether one listens")
	// ErrDeployment is returned when the registry's IDs have another layout.
	ErrDeployment = errors.New("workerid: another layout")
	// ErrNoDeployment is returned when the registry lacks the key deployment, which fixes layout and epoch, and this
	// worker may not write it, or this is a program.
	ErrNoDeployment = errors.New("workerid: the registry has no deployment")
	// ErrDamaged is returned when an entry of the registry is unreadable, or of another version.
	ErrDamaged = errors.New("workerid: an entry is damaged, or of another version")
	// ErrStateFile is returned when the state file cannot be written.
	ErrStateFile = errors.New("workerid: the state file cannot be written")
	// ErrExhausted is returned when every worker number is in use.
	ErrExhausted = errors.New("workerid: every worker number is in use")
)

var (
	// errLost is returned when a claim's record no longer bears its token.
	errLost = errors.New("workerid: the worker number is lost")
	// errEnded is returned when a claim's window has passed: only a new claim can follow.
	errEnded = errors.New("workerid: the window of the worker number has ended")
	// errClock is returned when this machine's clock is too far from the others' to write or issue anything.
	errClock = errors.New("workerid: this machine's clock is wrong")
	// errBehind is returned when the clock is behind a time that this worker issued or reported: it was ahead then,
	// or was set back since.
	errBehind = errors.New("workerid: the clock is behind a time that this worker issued or reported")
	// errAway is returned when the registry does not answer.
	errAway = errors.New("workerid: JetStream does not answer for the worker numbers")
	// errEarly is the reason why a number that was just acquired or resumed is not used yet.
	errEarly = errors.New("workerid: too early")
	// errTaken is returned when another worker has a number.
	errTaken = errors.New("workerid: the number is taken")
	// errUnknown is returned when it is unknown whether another worker answers
	// for a number.
	errUnknown = errors.New("workerid: asking for the holder of a number failed")
)
