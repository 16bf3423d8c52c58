// Package lineage stops a worker when the bucket of marks, the next IDs of tags, is no longer in the state from which
// the worker has loaded; it is internal to natsid and may change.
//
// Each load of IDs is a compare-and-set in one bucket. A bucket that was restored from a backup, lost its last
// writes, was made again, or belongs to another registry looks sound. So each worker remembers, also on disk: its own
// key (an entry that it alone writes), the eras that it knows, its floors (how far it has loaded each tag), and the
// highest revision. A worker whose memory the bucket contradicts stops all workers of the registry; proofs.go has the
// contradictions. An operator then resumes by one write, which begins a new era: see package era.
//
// Law: from a proof until the end of the incident (the stop), no worker loads, and none issues IDs from memory. The
// worker that has the proof writes it into the identity (the entry that describes the registry) as an incident, with
// all that it knows. A message asks the other workers to check. Each reads the incident, discards its IDs in memory,
// writes entries that the bucket lacks, and names the incident in its own key. The entry that is the proof stays as
// it was found, so a worker that is killed meanwhile proves it again.
//
// An operator waits until each worker has checked: see [Operator]. A worker that finds its incident ended enters the
// new era. It uses the range of a load only if it is still in the era in which the load began.
//
// Workers announce their registry. A worker that hears of another registry on its subjects asks one of its workers.
// If that answers, both registries stop, snowflakes included, until an operator says which one serves.
package lineage
