// Package leaf answers the HTTP requests of Meituan's Leaf, so that a service that uses Leaf changes one host name; it
// is internal to natsid and may change. Paths and answers are those of Leaf's server at commit 86a6441, on Spring Boot
// 1.5, but an answer without an ID is always an error:
//
//	/api/segment/get/{tag}      an ID of a tag; ?n= IDs, as in a reply over NATS
//	/api/snowflake/get/{any}    a snowflake, likewise
//	/decodeSnowflakeId          the parts of ?snowflakeId=
package leaf

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// A Server serves one listener. It issues nothing. Each request is one call of package client, which begins after the
// request came: by the law Merging its IDs are from a request to a worker that was sent later still, so that strict
// tags stay strict. For that reason nothing is held in advance.
type Server struct {
	IDs      *client.Client
	Deadline time.Duration    // the Timeout of IDs
	Layout   snowflake.Layout // of the snowflakes that are decoded
	Log      *slog.Logger
	stopping atomic.Bool
}

const headTime = 10 * time.Second // to read a request, and to write an answer after the deadline

// Serve serves l until ctx ends. Then it closes l, for half a second asks in answers to leave the open connections, and
// answers every request that it has taken.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	hs := &http.Server{
		Handler: s, ReadTimeout: headTime, WriteTimeout: headTime + s.Deadline, IdleTimeout: 5 * time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- hs.Serve(l) }()
	select {
	case err := <-served:
		return errors.Join(err, hs.Close())
	case <-ctx.Done():
	}
	_ = l.Close() // before anybody is asked to leave: who does may connect again
	<-served
	s.stopping.Store(true)
	time.Sleep(500 * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.Deadline+time.Second)
	defer cancel()
	if hs.Shutdown(ctx) == nil {
		return nil
	}
	s.Log.Warn("callers were cut off at the stop: they had not sent their requests in full, or not read their answers")
	return hs.Close()
}

// ServeHTTP answers a request of any method, as Leaf does. A slash at the end of a path is ignored.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.stopping.Load() {
		w.Header().Set("Connection", "close")
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	tag, isSegment := strings.CutPrefix(path, "/api/segment/get/")
	switch {
	case isSegment:
		if err := subjects.CheckTag(tag); err != nil {
			faultOf(fmt.Errorf("%w: %w", client.ErrUnknownTag, err)).write(w, r) // as Leaf takes it
			return
		}
		s.draw(w, r, s.IDs.Segment(tag))
	case strings.HasPrefix(path, "/api/snowflake/get/"):
		s.draw(w, r, s.IDs.Snowflake())
	case path == "/decodeSnowflakeId":
		s.decode(w, r)
	default:
		fault{404, "", "No message available", nil}.write(w, r)
	}
}

// draw answers with IDs of a handle. Calls for one ID share requests.
func (s *Server) draw(w http.ResponseWriter, r *http.Request, h *client.Handle) {
	n, err := subjects.ParseCount(countOf(r.URL), subjects.MaxBatchLimit)
	var id client.ID
	var runs client.Runs
	switch {
	case err != nil:
	case n == 1:
		id, err = h.Next(r.Context())
		runs = client.Runs{{First: int64(id), Last: int64(id)}}
	default:
		runs, err = h.NextN(r.Context(), n)
	}
	if err != nil {
		faultOf(err).write(w, r)
		return
	}
	var body []byte
	for _, run := range runs {
		body = subjects.AppendRun(body, run.First, run.Last)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(body) // it fails if the caller is gone
}

// countOf returns the parameter n, empty if there is none. A query that cannot be parsed is returned unchanged: it is
// not a valid count, and a caller that asked for several IDs must not get one.
func countOf(u *url.URL) []byte {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return []byte(u.RawQuery)
	}
	return []byte(strings.Join(query["n"], ","))
}

// decode answers with the parts of a snowflake, as strings, and its time in the zone of this process, as Leaf does.
func (s *Server) decode(w http.ResponseWriter, r *http.Request) {
	given := r.URL.Query()["snowflakeId"]
	if given == nil {
		fault{400, "org.springframework.web.bind.MissingServletRequestParameterException",
			"Required String parameter 'snowflakeId' is not present", nil}.write(w, r)
		return
	}
	id, err := strconv.ParseInt(given[0], 10, 64)
	p, bad := s.Layout.Decode(id)
	answer := map[string]string{
		"timestamp": fmt.Sprintf("%d(%s)", p.Time.UnixMilli(), p.Time.Local().Format("2006-01-02 15:04:05.000")),
		"workerId":  strconv.Itoa(p.Worker), "sequenceId": strconv.FormatInt(p.Sequence, 10),
	}
	switch {
	case err != nil:
		answer = map[string]string{"errorMsg": fmt.Sprintf("%+.40q is no snowflake: want a decimal number", given[0])}
	case bad != nil:
		answer = map[string]string{"errorMsg": bad.Error()}
	}
	writeJSON(w, 200, answer)
}

// A fault is an answer without an ID.
type fault struct {
	status    int
	exception string // name of the Java exception
	message   string
	said      *subjects.Error // for the headers that a caller over NATS would get; may be nil
}

// Leaf's numbers, in the text in which Leaf hides them.
const (
	notInitialised = "Result{id=-1, status=EXCEPTION}" // no worker serves
	unknownTag     = "Result{id=-2, status=EXCEPTION}"
	notReady       = "Result{id=-3, status=EXCEPTION}" // workers serve, and have no ID now
)

// faultOf returns the fault for an error of package client.
func faultOf(err error) fault {
	said, refused := errors.AsType[*subjects.Error](err)
	f := fault{503, "com.sankuai.inf.leaf.server.exception.LeafServerException", notInitialised, said}
	switch {
	case errors.Is(err, client.ErrUnknownTag):
		f.status, f.message = 500, unknownTag
	case refused && said.Code == subjects.BadRequest:
		f = fault{400, "java.lang.IllegalArgumentException", said.Text, said}
	case errors.Is(err, client.ErrThrottled), errors.Is(err, client.ErrBusy):
		f.status, f.message = 429, notReady
	case errors.Is(err, client.ErrUnavailable):
		f.message = notReady
	}
	if !refused { // no worker said anything
		f.said = subjects.Errorf(subjects.Code(f.status), "%v", err)
	}
	return f
}

// write writes the fault as Spring Boot does.
func (f fault) write(w http.ResponseWriter, r *http.Request) {
	if f.said != nil {
		for name, values := range f.said.Headers() {
			w.Header()[name] = values
		}
	}
	if subjects.Code(f.status).Retry() {
		after := cmp.Or(f.said.RetryAfter, time.Second)
		w.Header().Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	writeJSON(w, f.status, struct {
		Timestamp int64  `json:"timestamp"`
		Status    int    `json:"status"`
		Error     string `json:"error"`
		Exception string `json:"exception,omitempty"`
		Message   string `json:"message"`
		Path      string `json:"path"`
	}{time.Now().UnixMilli(), f.status, http.StatusText(f.status), f.exception, f.message, r.URL.Path})
}

// writeJSON writes a value that can be encoded.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, _ := json.Marshal(v)
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = w.Write(body) // it fails if the caller is gone
}
