package stage

import "strings"

// Overlap reports whether some subject matches both patterns of NATS. A subject is a pattern, too, so Overlap also
// reports whether a pattern matches a subject.
func Overlap(a, b string) bool {
	for {
		first, restA, moreA := strings.Cut(a, ".")
		other, restB, moreB := strings.Cut(b, ".")
		switch {
		case first == ">" || other == ">":
			return true
		case first != "*" && other != "*" && first != other || moreA != moreB:
			return false
		case !moreA:
			return true
		}
		a, b = restA, restB
	}
}
