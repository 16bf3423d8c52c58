package workerid

import (
	"math/rand/v2"
	"time"
)

// Simulate puts a keeper that has not run into a simulation: its random choices come from r, it looks at its clock
// every watch, and its state file, if it is to have one, is in this place, begins as data and is replaced by write.
func (k *Keeper) Simulate(
	r *rand.Rand, watch time.Duration, in string, data []byte, write func(data []byte) error,
) {
	k.chooseBy(r)
	k.watch = watch
	if write == nil {
		return
	}
	*k.file = stateFile{
		path:    "worker.json",
		now:     k.cfg.Now,
		write:   write,
		place:   place{Host: in},
		writing: make(chan struct{}, 1),
		reach:   reachOf(k.cfg.Layout.Unit),
	}
	if data != nil {
		k.unread = k.file.read(data)
	}
}

// ReadState returns the claim that a state file remembers.
func ReadState(data []byte) (c stateClaim, ok bool) {
	st, err := decodeState(data)
	if err != nil || st.Claim == nil {
		return c, false
	}
	return *st.Claim, true
}
