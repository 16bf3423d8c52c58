package wire

import "time"

// StageEvery is the time between two messages of a stage about itself.
const StageEvery = 5 * time.Second

// StageStopped is the role of a stage that ends.
const StageStopped = "stopped"

// StageView is the state of one stage, a process that runs `natsid stamp`.
type StageView struct {
	Name     string `json:"name"` // host and process
	From     string `json:"from"` // stream that it copies
	To       string `json:"to"`   // stream of the copies
	Role     string `json:"role"` // starting, copying, standby, retrying or [StageStopped]
	Position uint64 `json:"position"`
	Behind   uint64 `json:"behind"`        // messages of the source not copied yet, as last known
	Why      string `json:"why,omitempty"` // reason of the last retry, until a message was copied since
}

// ViewRequest selects optional parts of a WorkerView.
type ViewRequest struct {
	Busiest bool   `json:"busiest,omitempty"` // the worker's busiest tags, and the stages that it hears
	Tag     string `json:"tag,omitempty"`     // statistics of this tag
	Hour    bool   `json:"hour,omitempty"`    // the worker's last hour
}

// WorkerView is the state of one worker. Counts are since the process started.
type WorkerView struct {
	Version    string              `json:"version"`
	Started    time.Time           `json:"started"`
	Since      time.Time           `json:"since,omitzero"` // when it acquired its worker number
	Until      time.Time           `json:"until,omitzero"` // the end of its window
	OffsetMs   int64               `json:"offset_ms"`      // its clock minus JetStream's
	Registry   string              `json:"registry"`
	Era        string              `json:"era,omitempty"`    // of the registry: each resume begins another one
	Pinned     bool                `json:"pinned,omitempty"` // a setting names the registry
	Layout     string              `json:"layout"`
	Alarms     []OpenAlarm         `json:"alarms,omitempty"` // the latest first
	Modes      map[string]ModeView `json:"modes"`            // segment and snowflake
	Statistics WorkerStats         `json:"statistics"`
	Tag        *TagStats           `json:"tag"`              // the requested tag; null if not in memory
	Hour       *HourView           `json:"hour"`             // if requested
	Stages     []StageView         `json:"stages,omitempty"` // if requested
}

// OpenAlarm is an alarm that a worker raised in the last 15 minutes: the last one of its kind.
type OpenAlarm struct {
	Kind    Alarm     `json:"kind"`
	Since   time.Time `json:"since"` // when the first was raised: from then on, each came within 15 minutes
	Last    time.Time `json:"last"`
	Message string    `json:"message"`
}

// ModeView is the state of one mode of a worker.
type ModeView struct {
	State      string   `json:"state"`       // as in /readyz: [Ready], or why not
	LagSeconds Fraction `json:"lag_seconds"` // how long requests wait for their turn
	Waiting    int      `json:"waiting"`     // requests that wait now
	Requests   int64    `json:"requests"`    // answered
	Refused    int64    `json:"refused"`     // answered with an error
	IDs        int64    `json:"ids"`         // issued

	Codes map[string]int64 `json:"codes,omitempty"` // number of requests answered with an error, by its code
}

// HourStep is the interval between the points of an hour, and HourPoints the maximum number of points.
const (
	HourStep   = 10 * time.Second
	HourPoints = 360
)

// HourView is the last hour of a worker, for each mode, in points that are [HourStep] apart.
type HourView struct {
	End   int64                  `json:"end"` // time of the last point, Unix s, a multiple of HourStep
	Modes map[string][]HourPoint `json:"modes"`
}

// HourPoint is the figures of a mode in one [HourStep]. Its names are short, since an answer has hundreds.
type HourPoint struct {
	Requests int64 `json:"r"` // answered
	Refused  int64 `json:"f"` // answered with an error
	IDs      int64 `json:"i"` // issued
	MedianUs int64 `json:"m"` // upper bound of the duration of half of the answers
	SlowUs   int64 `json:"s"` // upper bound of the duration of 99 of 100 answers
	LagMs    int64 `json:"l"` // at the end of the step
}
