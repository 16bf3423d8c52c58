package subjects

import "time"

// HeaderPrefetch marks a request whose IDs are held for later use: its value is the maximum time that they are held,
// measured from before the request was sent, as a Go duration: "2s".
const HeaderPrefetch = "Natsid-Prefetch"

// MaxPrefetchAge is the longest time for which a caller may hold IDs: no ID is put to use later than that after a
// worker issued it. Those who raise a tag, or read the time in a snowflake, may rely on that. Uniqueness does not
// depend on it: a worker issues no ID twice, however long the first caller holds it.
const MaxPrefetchAge = time.Hour

// CheckPrefetch returns nil, or an [*Error] of code [BadRequest] that names the fault of a value of [HeaderPrefetch].
func CheckPrefetch(value string) error {
	age, err := time.ParseDuration(value)
	if err != nil || age <= 0 || age > MaxPrefetchAge {
		return Errorf(BadRequest, "the header %s is %s, want a duration above 0s and at most %v, such as 2s",
			HeaderPrefetch, excerpt([]byte(value), 24), MaxPrefetchAge)
	}
	return nil
}
