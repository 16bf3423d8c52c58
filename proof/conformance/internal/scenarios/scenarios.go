package scenarios

import "slices"

// All are the scenarios, in the order of the laws.
var All = slices.Concat(onTheWire, onMerging, onDeadlines, onHedging, onRetries, onPrefetch, onTheEnd)

// law returns the scenarios that check one law, a heading of docs/client-laws.md.
func law(name string, all ...Scenario) []Scenario {
	for i := range all {
		all[i].Law = name
	}
	return all
}

// full returns a scenario for clients.
func full(name, says string, play func(*Stage)) Scenario {
	return Scenario{Name: name, Says: says, Play: play}
}

// both returns a scenario for clients and for bare requests.
func both(name, says string, play func(*Stage)) Scenario {
	return Scenario{Name: name, Says: says, Wire: true, Play: play}
}
