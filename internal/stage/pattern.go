package stage

import "strings"

// Overlap reports whether two patterns of NATS match some subject both. A subject is a
// pattern, too, so it also reports whether a pattern matches a subject.
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
