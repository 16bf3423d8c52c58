//go:build race

package workerid_test

// schedules is the default number of simulated schedules; with the race
// detector each takes several times as long.
const schedules = 200

// repeated is how many schedules are compared with a second run of theirs.
const repeated = 20
