package segment

// Stats returns the present totals.
func (a *Allocator) Stats() Stats {
	s, _ := a.Busiest(0)
	return s
}
