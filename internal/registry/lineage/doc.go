// Package lineage makes sure that the state behind a worker is the one that it has loaded from; it is internal to
// natsid and may change.
//
// All that loads rest on lies in one bucket: marks, limits and orders. A bucket that was restored from a backup, lost
// its last seconds, was made again, or belongs to another registry looks sound. Each worker remembers enough to notice:
// see proofs.go. So the workers detect, stop and tell, and an operator resumes with one command, `natsid resume`, which
// begins a new era: see package era.
//
// # What a worker remembers
//
//   - Its own key: an entry that it alone writes, before each load whose last check is older than 3 s. Any other entry
//     than the last one written shows that the bucket went back, unless it names that one as taken over.
//   - The eras that it knows, with their offsets. An identity that lacks one is of another history, as is an entry of
//     an era that the identity lacks.
//   - Its floors: how far it has loaded each tag, and in which era. A mark below one shows that the bucket went back,
//     or that a resume began too low; but not that of a tag with a last number, about which operators decide.
//   - The highest revision. A write acknowledged at or below it went into a bucket that went back.
//
// With a data directory that outlasts the process. A copy of files with nobody left who remembers cannot be proven: an
// operator says so, with `natsid resume --restored`.
//
// # The stop
//
// Law: from a proof until the end of the incident, no worker loads, and none issues what it had in memory. A proof is
// written into the identity as an incident, with all that the prover knows; each worker reads that at each check, and
// is told by message. It discards its memory, gives the bucket what only it knows, and joins the incident in its own
// key. What the proof rests on stays as it was found, so a worker that is killed in between proves it again. See gate.
//
// # The end
//
// An operator waits until each worker has checked, and begins an era by a compare-and-set of the identity: see
// [Operator]. Workers that find their incident ended enter it. A load that began before is used only while its worker
// is in the era in which it began; whatever era its entry names, the next reader raises its mark.
//
// # Two registries
//
// Workers announce their registry. One that meets another registry behind its subjects proves it by asking: both stop,
// snowflakes included, until an operator says which one serves. The other one stays stopped, and is harmless then.
package lineage
