package durable

// A File is a file that is replaced repeatedly. The zero value with a path is ready. Only one caller at a time may
// use it, and no other program may replace the file or write to path.new.
type File struct {
	Path string

	// settled means that the last replacement is on disk. Then a crash would not bring the file at path.new back, and
	// it may be overwritten. Law: a state file that a crash brings back half written is lost, and an older one whose
	// fence is below issued ticks must not come back, so both names are on disk before Replace returns.
	settled bool
}
