//go:build !race

package workerid_test

// schedules is the default number of simulated schedules.
const schedules = 6_000

// repeated is how many schedules are compared with a second run of theirs.
const repeated = 200
