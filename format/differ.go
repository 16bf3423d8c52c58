package format

import "math/rand/v2"

// Differ returns an ID whose text new reads as another ID. It tries the texts of 20,000 IDs of each format, low ones
// and some of all lengths: an example is certain, that there is none is not.
func Differ(old, new *Format) (example int64, differs bool) {
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
		if written, _ := old.Format(was); err == nil && fault == nil && written == text && was != got { //mutant:differ
			return was, true
		}
	}
	return 0, false
}
