package grants

import (
	"crypto/rand"
	"math"
)

// appendLimit is the most bytes of an entry of [Append]: nats-server takes messages of 1 MiB by default.
const appendLimit = 256 << 10

// Append writes down what an operator's command has written into marks, so that an audit finds no missing link there.
// To an audit the command is a process that has ended: h needs neither Process nor Entry. It calls put with each entry,
// and returns its error.
//
// Call it after the writes, also after some of them failed: a write that may not have landed has no Written. Nothing
// rests on it: a command whose own work is done reports that Append failed, and ends with success.
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
			body, _ = left.encode(math.MaxInt) // the head is longer now
		}
		if err := put(body); err != nil {
			return err
		}
		left = rest
	}
	return nil
}
