//go:build race

package lineage

// schedules is the default number of simulated schedules.
const schedules = 50
