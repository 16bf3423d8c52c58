//go:build race

package workerid_test

// schedules is how many are simulated unless told otherwise; the race detector
// makes each several times as slow.
const schedules = 500
