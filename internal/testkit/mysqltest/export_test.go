package mysqltest

import "testing"

// AsRoot runs statements with all rights.
func (s *Server) AsRoot(statements ...string) { s.asRoot(statements...) }

// LookNowhere makes Start find no server, in a process where it has not looked
// yet.
func LookNowhere(t *testing.T) {
	t.Setenv("PATH", "")
	beyondPath = nil
}
