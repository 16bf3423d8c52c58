// Package leafhttp answers the HTTP requests of Meituan's Leaf, so that a service that uses Leaf changes one host name;
// it is internal to natsid and may change.
//
// The paths and answers are those of Leaf's server at commit 86a6441, on Spring Boot 1.5:
//
//	/api/segment/get/{tag}      an ID of a tag; ?n= IDs, as in a reply over NATS
//	/api/snowflake/get/{any}    a snowflake, likewise
//	/decodeSnowflakeId          the parts of ?snowflakeId=
//
// IDs come from a [worker.Direct], which keeps every law and limit. An answer either holds IDs or is an error: where
// Leaf answers 0, for a mode that is switched off, natsid answers an error.
package leafhttp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/worker"
)

// Config is the sources and settings of a Server. All fields but Called must be set.
type Config struct {
	IDs *worker.Direct
	// Layout is the layout of the snowflakes.
	Layout snowflake.Layout
	// Deadline is how long a request for IDs may wait.
	Deadline time.Duration
	// Called, if set, returns what counts the requests of callers with an address, a host without a port.
	Called func(address string) (count func())
	Log    *slog.Logger
}

// A Server serves one listener. It may be used once.
type Server struct {
	cfg      Config
	leave    time.Duration // how long idle connections stay open at a stop
	stopping atomic.Bool
	open     atomic.Int64 // connections
}

// New returns a server.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, leave: leaveTime}
}

const (
	// headTime bounds the reading of a request, and the writing of its answer beyond the deadline.
	headTime = 10 * time.Second
	// idleTime is longer than clients keep idle connections.
	idleTime = 5 * time.Minute
	headSize = 16 << 10
	// A client that uses an idle connection within leaveTime of a stop gets its answer, which asks it not to use the
	// connection again.
	leaveTime = 500 * time.Millisecond
)

// Serve serves l until ctx ends. Then it accepts no more connections, answers every request that it has taken, and
// closes l and all connections.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	hs := &http.Server{
		Handler: s, MaxHeaderBytes: headSize, ReadHeaderTimeout: headTime, ReadTimeout: headTime,
		WriteTimeout: headTime + s.cfg.Deadline, IdleTimeout: idleTime,
		ConnContext: s.begin, ConnState: s.ended, ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(l) }()
	select {
	case err := <-served:
		return errors.Join(err, hs.Close())
	case <-ctx.Done():
	}
	s.stopping.Store(true)
	_ = l.Close()
	<-served
	s.await(s.leave)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Deadline+time.Second)
	defer cancel()
	if hs.Shutdown(ctx) != nil {
		s.cfg.Log.Warn("callers of Leaf's paths were cut off at the stop: they had not sent their requests in full, " +
			"or not read their answers")
		_ = hs.Close()
	}
	return nil
}

// The paths.
const (
	segmentPath   = "/api/segment/get/"
	snowflakePath = "/api/snowflake/get/"
	decodePath    = "/decodeSnowflakeId"
)

// ServeHTTP answers a request of any method, as Leaf does. A slash at the end of a path is ignored.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	conn := connectionOf(r)
	if conn.called != nil {
		conn.called()
	}
	if conn.beyond || s.stopping.Load() {
		w.Header().Set("Connection", "close")
	}
	if conn.beyond {
		crowded(w, r)
		return
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	tag, isSegment := strings.CutPrefix(path, segmentPath)
	switch {
	case isSegment:
		s.segment(w, r, tag)
	case strings.HasPrefix(path, snowflakePath):
		s.snowflake(w, r)
	case path == decodePath:
		s.decode(w, r)
	default:
		notFound(w, r)
	}
}

// bodies are the buffers of answers.
var bodies = sync.Pool{New: func() any { return &body{b: make([]byte, 0, 64)} }}

type body struct{ b []byte }

// keptBody is the largest buffer that is reused.
const keptBody = 64 << 10

func (s *Server) segment(w http.ResponseWriter, r *http.Request, tag string) {
	draw := func(dst, count []byte) ([]byte, error) { return s.cfg.IDs.Segment(dst, tag, count) }
	if err := s.answer(w, r, draw); err != nil {
		segmentFault(tag, err).write(w, r)
	}
}

func (s *Server) snowflake(w http.ResponseWriter, r *http.Request) {
	if err := s.answer(w, r, s.cfg.IDs.Snowflake); err != nil {
		snowflakeFault(err).write(w, r)
	}
}

// answer answers with IDs from draw, or writes nothing and returns the error of draw. For one ID it allocates
// nothing.
func (s *Server) answer(
	w http.ResponseWriter, r *http.Request, draw func(dst, count []byte) ([]byte, error),
) (err error) {
	var count []byte
	if r.URL.RawQuery != "" {
		count = countOf(r.URL)
	}
	buf := bodies.Get().(*body)
	ids, err := draw(buf.b[:0], count)
	if err == nil {
		_, _ = w.Write(ids) // it fails if the caller is gone
	}
	if cap(ids) <= keptBody {
		buf.b = ids
	}
	bodies.Put(buf)
	return err
}

// countOf returns the parameter n, nil if there is none. A query that cannot be parsed is returned unchanged: it is
// not a valid count, and a caller that asked for several IDs must not get one.
func countOf(u *url.URL) []byte {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return []byte(u.RawQuery)
	}
	if n := query["n"]; n != nil {
		return []byte(strings.Join(n, ","))
	}
	return nil
}
