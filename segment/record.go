package segment

import "time"

// A Record is how fast and how far a tag was loaded, as the tag's mark stores it. From it an operator estimates how
// far the tag may have moved since a backup. The zero value has no load.
type Record struct {
	Since   int64 `json:"since"`   // when the first load was made, Unix ms
	Window  int64 `json:"window"`  // when the present minute began, Unix ms
	Used    int64 `json:"used"`    // IDs loaded since Window
	Peak    int64 `json:"peak"`    // most IDs loaded in a minute
	Largest int64 `json:"largest"` // most IDs in a load
}

// Load takes in a load of n IDs. A clock that was set back begins another minute.
func (r *Record) Load(now time.Time, n int64) {
	ms := now.UnixMilli()
	if r.Since == 0 {
		r.Since, r.Window = ms, ms
	}
	if past := ms - r.Window; past >= minute || past < 0 {
		r.Peak = max(r.Peak, perMinute(r.Used, past))
		r.Window, r.Used = ms, 0
	}
	r.Used += n
	r.Largest = max(r.Largest, n)
}

const minute = int64(time.Minute / time.Millisecond)

// PerSecond returns the highest pace on record, in IDs per second over a minute.
func (r Record) PerSecond() float64 { return float64(max(r.Peak, r.Used)) / 60 }

func perMinute(n, past int64) int64 { return n * minute / max(past, minute) }
