//go:build !race

package workerid_test

// schedules is how many are simulated unless told otherwise.
const schedules = 10_000
