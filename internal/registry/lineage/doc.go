// Package lineage stops a worker when the bucket of marks is no longer in the state from which the worker has loaded;
// it is internal to natsid and may change.
//
// Each load is a compare-and-set in one bucket. A bucket that was restored from a backup, lost its last writes, was
// made again, or belongs to another registry looks sound. So each worker remembers, also in its data directory, its own
// key, the eras that it knows, how far it has loaded each tag (its floors), and the highest revision. A worker that
// finds the bucket to contradict its memory stops the registry; proofs.go says what is a contradiction. An operator
// then resumes by one write, which begins a new era: see package era.
//
// Law: from a proof until the end of the incident, no worker loads, and none issues IDs from memory. The worker that
// has the proof writes it into the identity as an incident, with all that it knows. Each other worker reads the
// incident at its next check, for which a message asks: it discards its IDs in memory, writes entries that the bucket
// lacks, and names the incident in its own key. The entry that is the proof stays as it was found, so a worker that is
// killed in between proves it again.
//
// An operator waits until each worker has checked: see [Operator]. A worker that finds its incident ended enters the
// new era. It uses the range of a load only if it is still in the era in which the load began.
//
// Workers announce their registry. A worker that hears of another registry on its subjects asks that one; if it
// answers, both registries stop, snowflakes included, until an operator says which of them serves.
package lineage
