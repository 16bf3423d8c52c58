package ledger

// sortRuns returns runs in the order of their first IDs, and memory for the
// next time. It sorts by one byte after the other, the lowest first, and leaves
// out those in which all runs agree. That takes the same time for any order,
// and a fifth of what comparing takes.
func sortRuns(runs, spare []Run) (sorted, rest []Run) {
	if rising(runs) {
		return runs, spare
	}
	if cap(spare) < len(runs) {
		spare = make([]Run, cap(runs))
	}
	var counts [8][256]int
	for _, r := range runs {
		for b := range counts {
			counts[b][byte(r.First>>(8*b))]++
		}
	}
	for b := range counts {
		if counts[b][byte(runs[0].First>>(8*b))] == len(runs) {
			continue
		}
		spare = spare[:len(runs)]
		scatter(spare, runs, &counts[b], 8*b)
		runs, spare = spare, runs
	}
	return runs, spare
}

// scatter puts the runs from one slice into the other in the order of the byte
// at shift, and keeps the order of those that agree in it.
func scatter(to, from []Run, counts *[256]int, shift int) {
	next := 0
	for v, n := range counts {
		counts[v] = next
		next += n
	}
	for _, r := range from {
		v := byte(r.First >> shift)
		to[counts[v]] = r
		counts[v]++
	}
}

func rising(runs []Run) bool {
	for i := 1; i < len(runs); i++ {
		if runs[i].First < runs[i-1].First {
			return false
		}
	}
	return true
}
