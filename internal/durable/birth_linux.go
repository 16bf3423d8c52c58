package durable

import (
	"os"

	"golang.org/x/sys/unix"
)

// birth returns the time of a file's creation in Unix ns, 0 if the file system does not record it.
func birth(f *os.File) int64 {
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st)
	if err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return st.Btime.Sec*1e9 + int64(st.Btime.Nsec)
}
