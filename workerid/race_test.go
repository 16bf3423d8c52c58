//go:build race

package workerid_test

// schedules is the default number of simulated schedules; with the race
// detector each takes several times as long.
const schedules = 500
