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
// where [from, until) is a window that this process, or the process whose window it resumes, wrote into the record by
// an acknowledged compare-and-set, and from is not below the until of the record's previous owner. So windows of
// different owners are disjoint, and the fence in the state file separates two processes of one owner. Clocks, pauses,
// partitions, heartbeats, timeouts and lost acknowledgements decide only how soon a number is used again.
// docs/uniqueness.md draws the window and lists the rules that keep the law.
//
// The margin is MaxClockSkew + max(MaxAhead, one tick) + one tick: how far the last ID of a worker whose clock is right
// can be ahead of this clock.
//
// # The types
//
// A [Keeper] searches for a number, holds it, and gives it up. A life is the phase of a keeper. A claim is a number
// with its record and its generator. A clock compares this machine's time with the others', and a stateFile keeps the
// fence.
package workerid
