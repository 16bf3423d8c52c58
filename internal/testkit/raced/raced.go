// Package raced makes tests smaller under the race detector, with which what computes takes several times as long.
package raced

// Or returns the size of a test: the first one under the race detector, the second one without it.
func Or(raced, plain int) int {
	if on {
		return raced
	}
	return plain
}
