package grants

import (
	"crypto/rand"
	"math"
)

// appendLimit is the maximum size of an entry of [Append] in bytes: nats-server takes messages of 1 MiB by default.
const appendLimit = 256 << 10

// Append writes entries for the marks that an operator's command has written, so that an audit finds no missing link
// there. To an audit the command is a process that has ended: h needs neither Process nor Entry. It calls put with
// each entry, and returns the error of put.
//
// Call it after the writes, also after some of them failed: a write that may not have landed has no Written.
// Uniqueness does not depend on it: a command whose own work is done reports that Append failed, and ends with
// success.
func Append(put func(entry []byte) error, h Head, writes []Write) error {
	if len(writes) == 0 {
		return nil
	}
	h.Process, h.Entry, h.Lost = rand.Text(), 0, 0
	for left := (Batch{Writes: writes}); len(left.Writes) > 0; {
		h.Entry++
		left.Head = h
		body, rest := left.encode(appendLimit)
		if len(rest.Writes) == 0 {
			left.End = true
			body, _ = left.encode(math.MaxInt) // the head has become longer
		}
		if err := put(body); err != nil {
			return err
		}
		left = rest
	}
	return nil
}
