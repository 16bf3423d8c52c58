package subjects

// HeaderProbe marks a message on a subject of requests whose body is [ProbeBody]: it asks whether a worker serves the
// subject, and for no ID. The answer is empty.
const HeaderProbe = "Natsid-Probe"

// ProbeBody is the body of a probe. It is not a count, so workers look for the header only if a body is malformed,
// and a probe never draws an ID.
const ProbeBody = "probe"

// SegmentProbe returns the subject on which workers probe whether requests for IDs
// of tags are delivered. No tag has its name.
func (n Namespace) SegmentProbe() string { return n.Segment("~probe") }

// Probe returns the subject on which a worker asks itself, by a name of its own.
func (n Namespace) Probe(name string) string { return n.worker("probe-" + name) }
