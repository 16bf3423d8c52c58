package subjects

import "time"

// HeaderPrefetch marks a request whose IDs are held for later: its value is how long
// they are held at most, from before the request was sent, as a Go duration: "2s".
const HeaderPrefetch = "Natsid-Prefetch"

// MaxPrefetchAge is the longest time for which a caller may hold IDs. Whoever raises a
// tag, or reads the time in a snowflake, can count on it: no ID is put to use later
// than that after a worker issued it. Uniqueness does not rest on it: a worker issues
// no ID twice, however long the first caller holds it.
const MaxPrefetchAge = time.Hour

// HeldLoose is for how long a worker that was cut off may serve a tag from memory without
// knowing whether it has become strict. StrictAfter is how long after the command such a
// tag is strict: its last caller may hold IDs for MaxPrefetchAge.
const (
	HeldLoose   = 30 * time.Minute
	StrictAfter = HeldLoose + MaxPrefetchAge
)

// CheckPrefetch returns an [*Error] of code [BadRequest] that says what is wrong with
// a value of [HeaderPrefetch], or nil.
func CheckPrefetch(value string) error {
	age, err := time.ParseDuration(value)
	if err != nil || age <= 0 || age > MaxPrefetchAge {
		return Errorf(BadRequest, "the header %s is %s, want a duration above 0s and at most %v, such as 2s",
			HeaderPrefetch, excerpt([]byte(value), 24), MaxPrefetchAge)
	}
	return nil
}
