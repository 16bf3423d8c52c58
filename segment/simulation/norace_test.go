//go:build !race

package simulation_test

// schedules is the default number of simulated schedules.
const schedules = 10_000
