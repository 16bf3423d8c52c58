package wire

import "time"

// StageEvery is the time between two messages of a stage about itself.
const StageEvery = 5 * time.Second

// StageStopped is the role in the last message of a stage.
const StageStopped = "stopped"

// StageView is the state of one stage, a process that runs `natsid stamp`.
type StageView struct {
	Name     string `json:"name"`          // host and process
	From     string `json:"from"`          // stream that it copies
	To       string `json:"to"`            // stream of the copies
	Role     string `json:"role"`          // starting, copying, standby, retrying or [StageStopped]
	Position uint64 `json:"position"`      // sequence in From up to which messages are copied or passed over
	Behind   uint64 `json:"behind"`        // messages of the source not copied yet, as last known
	Why      string `json:"why,omitempty"` // reason of the last retry; "" once a message was copied after it
}

// ViewRequest selects optional parts of a WorkerView.
type ViewRequest struct {
	Busiest bool   `json:"busiest,omitempty"` // the worker's busiest tags, and the stages whose messages it receives
	Tag     string `json:"tag,omitempty"`     // statistics of this tag
	Hour    bool   `json:"hour,omitempty"`    // the worker's last hour
}

// WorkerView is the state of one worker. Its counts begin at the start of the process.
type WorkerView struct {
	Version    string              `json:"version"`
	Started    time.Time           `json:"started"`
	Since      time.Time           `json:"since,omitzero"` // when it acquired its worker number
	Until      time.Time           `json:"until,omitzero"` // the end of its window
	OffsetMs   int64               `json:"offset_ms"`      // its clock minus JetStream's
	Registry   string              `json:"registry"`
	Era        string              `json:"era,omitempty"`    // of the registry; each resume begins a new era
	Pinned     bool                `json:"pinned,omitempty"` // --registry names the registry
	Layout     string              `json:"layout"`
	Alarms     []OpenAlarm         `json:"alarms,omitempty"` // the latest first
	Modes      map[string]ModeView `json:"modes"`            // segment and snowflake
	Statistics WorkerStats         `json:"statistics"`
	Tag        *TagStats           `json:"tag"`              // the requested tag; null if not in memory
	Hour       *HourView           `json:"hour"`             // if requested
	Stages     []StageView         `json:"stages,omitempty"` // if requested
}

// OpenAlarm is the last alarm of a kind, if a worker raised it in the last 15 minutes.
type OpenAlarm struct {
	Kind    Alarm     `json:"kind"`
	Since   time.Time `json:"since"` // time of the first alarm of a series without pauses of 15 minutes
	Last    time.Time `json:"last"`  // time of this alarm
	Message string    `json:"message"`
}

// ModeView is the state of one mode of a worker.
type ModeView struct {
	State      string   `json:"state"`       // as in /readyz: [Ready], or the reason why not
	LagSeconds Fraction `json:"lag_seconds"` // how late requests are answered
	Waiting    int      `json:"waiting"`     // number of requests that wait now
	Requests   int64    `json:"requests"`    // number of answers
	Refused    int64    `json:"refused"`     // number of answers that are errors
	IDs        int64    `json:"ids"`         // number of IDs issued

	Codes map[string]int64 `json:"codes,omitempty"` // number of errors, by code
}

// HourStep is the time between two points of an [HourView], and HourPoints the most points of a mode.
const (
	HourStep   = 10 * time.Second
	HourPoints = 360
)

// HourView is the last hour of a worker, for each mode, in points that are [HourStep] apart.
type HourView struct {
	End   int64                  `json:"end"` // time of the last point, Unix s, a multiple of HourStep
	Modes map[string][]HourPoint `json:"modes"`
}

// HourPoint has the figures of a mode in one [HourStep]. Its names in JSON are short, since a view has hundreds.
type HourPoint struct {
	Requests int64 `json:"r"` // number of answers
	Refused  int64 `json:"f"` // number of answers that are errors
	IDs      int64 `json:"i"` // number of IDs issued
	MedianUs int64 `json:"m"` // half of the answers took at most this long
	SlowUs   int64 `json:"s"` // 99 of 100 answers took at most this long
	LagMs    int64 `json:"l"` // how late requests were answered at the end of the step
}
