package format

import "math/rand/v2"

// Differ returns a text that both formats read, as two IDs. It tries the texts of 20,000 IDs of each format, low ones
// and some of all lengths: an example is certain, that there is none is not.
//
// It needs no keys. Masks of other keys, known by their names, or of another number of numbers make two IDs of each
// text that both formats take. The check digit of an example with a mask may not be that of its key.
func Differ(old, new *Format) (example string, differs bool) {
	other := !old.masksAs(new) //mutant:masks
	old, new = old.open(), new.open()
	random := rand.New(rand.NewPCG(1, 1))
	for i := range int64(40_000) {
		f, n := old, i/2
		if i%2 == 1 { //mutant:both
			f = new
		}
		if n >= 2000 {
			n = random.Int64() >> random.IntN(63)
		}
		text, err := f.Format(f.period.join(values{
			number: int64(uint64(n) % (uint64(f.max) + 1)),
			year:   2000 + random.Int64N(100), month: 1 + random.Int64N(12), day: 1 + random.Int64N(28),
		}))
		if err != nil {
			continue
		}
		was, err := old.Read(text)
		got, fault := new.Read(text)
		written, _ := old.Format(was)
		if err == nil && fault == nil && written == text && (was != got || other) { //mutant:differ
			return text, true
		}
	}
	return "", false
}
