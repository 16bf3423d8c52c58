package leafhttp

import "time"

// Leave sets how long a stop lets idle connections live.
func (s *Server) Leave(d time.Duration) { s.leave = d }
