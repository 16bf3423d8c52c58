package workerid

import "errors"

var (
	// ErrConflict is returned when the entry to write does not have the expected revision.
	ErrConflict = errors.New("workerid: the record was changed")
	// ErrNoRecord is returned when a worker number has no record.
	ErrNoRecord = errors.New("workerid: no record")
	// ErrNoWorker is returned when no worker answers for a number.
	ErrNoWorker = errors.New("workerid: no worker answers")
	// ErrBystander is returned when no worker answers for a number, but another subscriber receives all such questions
	// and does not answer. Then NATS cannot report that a number has no subscriber.
	ErrBystander = errors.New("workerid: no worker answers, and a subscriber hides whether one listens")
	// ErrDeployment is returned when the registry has another layout than this worker.
	ErrDeployment = errors.New("workerid: another layout")
	// ErrNoDeployment is returned when the registry lacks the key deployment, which fixes layout and epoch, and
	// this process may not write the key.
	ErrNoDeployment = errors.New("workerid: the registry has no deployment")
	// ErrDamaged is returned when an entry of the registry is unreadable, or of another version.
	ErrDamaged = errors.New("workerid: an entry is damaged, or of another version")
	// ErrStateFile is returned when the state file cannot be written.
	ErrStateFile = errors.New("workerid: the state file cannot be written")
	// ErrExhausted is returned when every worker number is in use.
	ErrExhausted = errors.New("workerid: every worker number is in use")
)

var (
	// errLost is returned when the record of a number lacks the token that this worker wrote into it.
	errLost = errors.New("workerid: the worker number is lost")
	// errEnded is returned when the window, the time in which a number may be used, has passed: it cannot be renewed.
	errEnded = errors.New("workerid: the window of the worker number has ended")
	// errClock is returned when this machine's clock is so far from the others' that nothing is written or issued.
	errClock = errors.New("workerid: this machine's clock is wrong")
	// errBehind is returned when the clock is behind a time that this worker issued or reported.
	errBehind = errors.New("workerid: the clock is behind a time that this worker issued or reported")
	// errAway is returned when the registry does not answer.
	errAway = errors.New("workerid: JetStream does not answer for the worker numbers")
	// errEarly is the status of a number, just acquired or resumed, whose window has not begun: nothing is issued yet.
	errEarly = errors.New("workerid: too early")
	// errTaken is returned when another worker has a number.
	errTaken = errors.New("workerid: the number is taken")
	// errUnknown is returned when it is unknown whether another worker answers for a number.
	errUnknown = errors.New("workerid: asking for the holder of a number failed")
)
