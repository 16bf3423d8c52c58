package durable

// A File is a file that is replaced again and again. The zero value with a path is ready. One caller at a time may use
// it, and nobody else may replace the file or write to path.new meanwhile.
type File struct {
	Path string

	// settled says that the last replacement is on disk. Then the file at path.new is not the one that a crash would
	// bring back, and may be overwritten. Law: a state file that a crash brings back half written is lost, and an older
	// one whose fence is below issued ticks must not come back, so both names are on disk before Replace returns.
	settled bool
}
