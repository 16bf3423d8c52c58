package scenarios

import "slices"

// The headings of docs/client-laws.md.
const (
	wireLaw     = "The wire"
	mergingLaw  = "Merging"
	deadlineLaw = "Deadlines"
	hedgingLaw  = "Hedging"
	retryLaw    = "Retries"
	budgetLaw   = "The budget"
	prefetchLaw = "Prefetch"
	endLaw      = "The end"
	countsLaw   = "Counts"
)

// All are the scenarios, in the order of the laws.
var All = slices.Concat(onTheWire, onMerging, onDeadlines, onHedging, onRetries, onPrefetch, onTheEnd, onCounts)
