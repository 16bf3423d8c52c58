// Package oneregistry sees to it that the workers behind one subject rest on one registry; it is internal to natsid and
// may change.
//
// A registry is where marks and worker numbers are durable. A leaf node with a JetStream of its own makes a second one
// behind the same subjects, and both count from 1. No law of uniqueness holds between two registries, so they must not
// both serve. What this package promises, while messages pass between the workers of both:
//
//   - A worker that starts asks who is there before it serves. Two registries that become connected find out within
//     10 s: one announcement per registry every 5 to 8 s is enough. A worker that hears its own registry's announcement
//     puts its own off, so the cost grows with the fleet and not with its square.
//   - What was heard is proof of nothing. A worker reads its own registry afresh, and asks the other one, whose answer
//     is read afresh too: after a wipe, workers are of another opinion for a moment, and of one a moment later.
//   - Both then stop issuing segment IDs at once, before anything else is done. One of the two yields:
//     [Notice.Outranks] decides, from facts that both exchange in one request.
//   - Marks are merged before segments are issued again: every tag of the registry that stays is raised above what the
//     other has loaded, with its least, so that what its workers hold in memory below that is discarded too.
//   - The registry that yields serves nothing from then on. It is written in that registry, by compare-and-set, and in
//     the data directory of each worker: a link that is lost, or a restart, does not undo it. Only an operator does.
//
// What may have been given twice is what both issued before they stopped: of each tag the IDs below the lower of the
// two marks, and the snowflakes of worker numbers that both had. The alarm lists them.
//
// The package knows neither NATS nor a store: see [Bus] and [Home].
package oneregistry
