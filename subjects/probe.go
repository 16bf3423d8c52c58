package subjects

// Probe returns the subject on which a worker asks itself, by a name of its own.
func (n Namespace) Probe(name string) string { return n.worker("probe-" + name) }
