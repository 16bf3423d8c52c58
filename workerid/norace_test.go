//go:build !race

package workerid_test

// schedules is the default number of simulated schedules.
const schedules = 10_000
