package mysqltest

import "testing"

// LookNowhere makes Start find no server, in a process where it has not looked
// yet.
func LookNowhere(t *testing.T) {
	t.Setenv("PATH", "")
	beyondPath = nil
}
