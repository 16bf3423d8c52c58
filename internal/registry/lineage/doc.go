// Package lineage makes sure that the state behind a worker is the one that it has loaded from; it is internal to
// natsid and may change.
//
// Loads rest on one bucket. A bucket that was restored from a backup, lost its last seconds, was made again, or is
// another registry's looks sound. Each worker remembers enough to notice, also in its data directory: its own key, the
// eras that it knows, its floors, the highest revision. proofs.go says what each of them shows. So workers detect it
// and stop, and an operator resumes by one write, which begins a new era: see package era.
//
// Law: from a proof until the end of the incident, no worker loads, and none issues what it had in memory. The prover
// writes the proof into the identity as an incident, with all that it knows. Each worker reads the incident at its next
// check, which a message brings forward: it discards its memory, restores what only it knows to the bucket, and joins
// the incident in its own key. The entry that is the proof stays as it was found, so a worker that is killed in between
// proves it again.
//
// An operator waits until each worker has checked: see [Operator]. Workers that find their incident ended enter the new
// era. A load that began before is used only while its worker is in the era in which it began.
//
// Workers announce their registry. One that meets another registry behind its subjects proves it by asking: both stop,
// snowflakes included, until an operator says which one serves.
package lineage
