// Package lineage makes sure that the state behind a worker is the one that it has loaded from; it is internal to
// natsid and may change.
//
// All that loads rest on lies in one bucket: marks, limits and orders. A bucket that was restored from a backup, lost
// its last seconds, was made again, or belongs to another registry looks sound. Each worker remembers enough to
// notice: see proofs.go. Noticing is simple and sound; healing is not, since nobody knows what was loaded since the
// state that is found. So the workers detect, stop and tell, and an operator resumes with one command, `natsid
// resume`.
//
// # What a worker remembers
//
//   - Its own key: an entry that it alone writes, before each load whose last check is older than 3 s. Any other entry
//     than the last one written shows that the bucket went back, unless it names that one as taken over.
//   - The era: the registry's history is a chain of eras, each named by the incident that ended before it. The chain is
//     part of the identity, one entry of the bucket.
//   - Its floors: how far it has loaded each tag. A mark below one shows that the bucket went back.
//   - The highest revision. A write acknowledged at or below it went into a bucket that went back.
//
// With a data directory that outlasts the process. A copy of files with nobody left who remembers cannot be proven:
// an operator declares it.
//
// # The stop
//
// Law: from a proof until the end of the incident, no worker loads, and none issues what it had in memory. A proof is
// written into the identity as an incident; each worker reads that before its first load and at each check, and is told
// by message. It discards its memory, lifts the marks to its floors, and joins the incident in its own key. See machine
// for the states.
//
// # The end
//
// An operator reads the incident, waits until no worker can use a load that did not know of it, plans how far each tag
// is raised, writes the plan beside the identity, raises, and ends the incident: all by compare-and-set, so that of two
// operators one is told. See [Operator]. Workers that find their incident in the chain begin the new era; its plan's
// ends are floors of theirs from then on.
//
// # Two registries
//
// Workers announce their registry. One that meets another registry behind its subjects proves it by asking: both stop,
// snowflakes included, until an operator says which one stays. The other one is out: it serves nothing.
package lineage
