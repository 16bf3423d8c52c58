// Package workerid acquires a worker number for this process and keeps it, so
// that no snowflake repeats; it is internal to natsid and may change.
//
// # The law
//
// For each worker number the registry has one permanent record with a time,
// until. A process puts tick t into an ID only if
//
//	from <= first ms of t < until
//
// where [from, until) is a window that this process, or the predecessor whose window it resumes, wrote into the
// record with an acknowledged compare-and-set, and from is not below the until that the record's previous owner left.
// Windows of different owners are therefore disjoint, and the fence in the state file separates two processes of one
// owner. Clocks, pauses, partitions and lost acknowledgements do not change that: they decide only how soon a number
// is used again. The same holds for heartbeats and timeouts.
//
//	 until of the previous owner
//	   |   from                              now     limit = min(fence, until)      until (acknowledged)
//	---+----+=================================+--------+-----------------------------+----------------> ms
//	        | ticks issued, or passed unused  |<-<=3 s>|                             | next owner's from
//	        |                                 |<------------ <= horizon ------------>|
//
//	renew at until - now = 2/3..3/4 horizon: until' = max(until, now + horizon)
//	restart after a crash:                  from'  = max(fence, now), by compare-and-set on the file's token
//	the same, registry out of reach:        from'  = max(fence, now), until as in the state file, no write
//	clean stop:                             until' = max(from, end of the last tick issued)
//
// # The rules
//
// Each rule is followed by the repeat that it prevents.
//
//   - Every write is a compare-and-set with a fresh random token. Otherwise two
//     workers of one name, or two processes of one worker, would mistake each
//     other's record for their own.
//   - Every write of a claim but the first reads the record before, and is made
//     only if the record bears the claim's token. A restored registry gives its
//     revisions again: a write on a remembered revision could hit the record of
//     another worker.
//   - Only an acknowledged write extends the window; a read never does. After
//     an error the record is read: if it bears a token of this claim, its
//     revision is adopted and the write repeated, three times at most; with any
//     other token, or none, the number is lost, or was never won: where no write
//     was acknowledged and the record is as before, the attempt ends. Otherwise
//     worker A reads its unacknowledged until, the leader that showed it is deposed,
//     and the write is gone: B starts at the old until, and A is beyond it.
//   - A lost number closes its generator before anything else. The worker still
//     answers for it during the margin, and then searches again. Otherwise it
//     would continue in ticks of the new owner; and where the record itself was
//     lost, a neighbour whose clock is behind would begin before the last ID.
//   - A renewal whose acknowledged until has passed is a new claim. Otherwise A
//     stands still, B acquires the number, the registry is restored to A's token,
//     and A extends a window that begins before B's.
//   - The first window begins at max(until of the record, now + margin), as read
//     after the write was acknowledged, unless the worker resumes the rest of its
//     own window, or released the number itself. A record that is absent or looks
//     free may have been lost or set back while its owner was alive, and that owner
//     has issued up to its own now and a little ahead.
//   - A number that another process answers for is not acquired, nor is one
//     for which the question times out. The question is repeated after the
//     write was acknowledged, and the record is written again: the owner may still
//     run on its old window, or its write may have been under way when the record
//     was lost. The question is also repeated after this worker has answered for a
//     lost number instead: another worker may have acquired the new number where its
//     record was lost, too. Where silence proves nothing ([ErrBystander]), the record
//     decides, and a first window begins two heartbeats later: each of them closes
//     the generator of a worker whose record is gone. A damaged record's window is
//     unknown, so its number is left alone.
//   - Revisions of a bucket begin at its creation time in microseconds (package
//     internal/registry/buckets). Otherwise an owner's old revision could fit the record
//     of another worker in a bucket that was created again.
//   - Layout, epoch and unit must equal the registry's [Deployment], which is read
//     before and after a number is acquired and at each third heartbeat. Other ticks,
//     shifted differently, give the same 64 bits. A deployment is created only where
//     there is no record, or as the records name it, and never changed.
//   - A clean stop closes the generator, then removes the claim from the state
//     file, then lowers until, never below from. In another order an ID could
//     lie beyond until; below from, the next owner would enter ticks of an
//     earlier owner.
//
// The margin is MaxClockSkew + max(MaxAhead, one tick) + one tick: how far the
// last ID of a worker with a correct clock can be ahead of this clock.
//
// # The types
//
// A [Keeper] runs a loop of searching and holding. A chooser finds a number and
// returns a claim. A claim is the number, its record and its generator. A holder
// sends heartbeats for a claim until it ends. A clock compares this machine's
// time with the others', a stateFile keeps the fence, and a lifecycle holds the
// phase, the [Status], and every transition between phases.
package workerid
