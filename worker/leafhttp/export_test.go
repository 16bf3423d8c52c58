package leafhttp

import "time"

// Leave sets how long a stop lets idle connections live.
func (s *Server) Leave(d time.Duration) { s.leave = d }

// Crowd lets the server take all but n of the connections that it may have for open; with a negative n, as many more.
func (s *Server) Crowd(n int64) { s.open.Add(maxConnections - n - s.open.Load()) }

// Refused is how many connections beyond those are answered.
const Refused = maxRefused
