// Package leaf answers the HTTP requests of Meituan's Leaf, so that a service that uses Leaf changes one host name; it
// is internal to natsid and may change. Paths and answers are those of Leaf's server at commit 86a6441, on Spring Boot
// 1.5, except that an answer without an ID is always an error, and that ?n= requests several IDs, in runs as over NATS.
package leaf

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// A Server serves one listener. It issues no IDs itself: each request becomes one call of package client. By the law
// Merging of docs/client-laws.md, the IDs of a call come from a request that the client sends after the call began. So
// strict tags stay strict. For that the server holds no IDs in advance.
type Server struct {
	IDs      *client.Client
	Deadline time.Duration    // the Timeout of the client in IDs
	Layout   snowflake.Layout // of the snowflakes that are decoded
	Log      *slog.Logger
	stopping atomic.Bool
}

// Serve serves l until ctx ends. Then it closes l, asks callers for half a second, in its answers, to close their
// connections, and answers every request that it has taken.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	hs := &http.Server{
		Handler: s, ReadTimeout: 10 * time.Second, WriteTimeout: s.Deadline + 10*time.Second,
		IdleTimeout: 5 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })() // before callers close connections and may connect again
	if err := hs.Serve(l); ctx.Err() == nil {
		return errors.Join(err, hs.Close())
	}
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

// ServeHTTP answers a request of any method, as Leaf does. OPTIONS and HEAD draw no ID, though Leaf draws one for HEAD.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.stopping.Load() {
		w.Header().Set("Connection", "close")
	}
	path := pathOf(r.URL)
	tag, isSegment := strings.CutPrefix(path, "/api/segment/get/")
	switch {
	case isSegment:
		h, err := s.IDs.Segment(tag, client.SegmentConfig{})
		s.draw(w, r, h, err)
	case strings.HasPrefix(path, "/api/snowflake/get/"):
		h, err := s.IDs.Snowflake(client.SnowflakeConfig{})
		s.draw(w, r, h, err)
	case path == "/decodeSnowflakeId":
		s.decode(w, r)
	default:
		fail(w, r, 404, "", "No message available", nil)
	}
}

var ignored, slashes = regexp.MustCompile(`;[^/]*`), regexp.MustCompile(`//+`)

// pathOf returns a path without what Spring ignores: parameters, empty segments, and a slash at the end.
func pathOf(u *url.URL) string {
	path, _ := url.PathUnescape(ignored.ReplaceAllString(u.EscapedPath(), "")) // cannot fail, since u was parsed
	return strings.TrimSuffix(slashes.ReplaceAllString(path, "/"), "/")
}

const (
	asText = "text/plain;charset=UTF-8"
	asJSON = "application/json;charset=UTF-8"
)

var kinds = map[string]string{
	"text/plain": asText, "text/*": asText, "*/*": asText, "application/json": asJSON, "application/*": asJSON,
}

// kindOf returns the content type that the headers Accept prefer for an ID, whose text is a JSON number, too.
func kindOf(accept []string) string {
	best, most := asText, 0.0
	for want := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		kind, params, _ := mime.ParseMediaType(want)
		q, err := strconv.ParseFloat(cmp.Or(params["q"], "1"), 64)
		if as, ok := kinds[kind]; ok && err == nil && q > most {
			best, most = as, q
		}
	}
	return best
}

// draw answers with IDs of a handle, or with the reason why there are none. Calls for one ID share requests.
func (s *Server) draw(w http.ResponseWriter, r *http.Request, h *client.Handle, wrong error) {
	if r.Method == http.MethodOptions || r.Method == http.MethodHead {
		w.Header().Set("Allow", "GET,HEAD,POST,PUT,PATCH,DELETE,OPTIONS")
		return
	}
	n, err := wire.ParseCount(countOf(r.URL), wire.MaxBatchLimit)
	kind, body := asText, []byte(nil)
	switch err = cmp.Or(wrong, err); {
	case err != nil:
	case n == 1:
		var id subjects.ID
		id, err = h.Next(r.Context())
		kind, body = kindOf(r.Header["Accept"]), strconv.AppendInt(nil, int64(id), 10)
	default:
		var runs subjects.Runs
		runs, err = h.NextN(r.Context(), n)
		for _, run := range runs {
			body = subjects.AppendRun(body, run.First, run.Last)
		}
	}
	if err != nil {
		refuse(w, r, err)
		return
	}
	write(w, 200, kind, body)
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
		fail(w, r, 400, "org.springframework.web.bind.MissingServletRequestParameterException",
			"Required String parameter 'snowflakeId' is not present", nil)
		return
	}
	id, err := strconv.ParseInt(given[0], 10, 64)
	p, bad := s.Layout.Decode(subjects.ID(id))
	answer := map[string]string{
		"timestamp": fmt.Sprintf("%d(%s)", p.Time.UnixMilli(), p.Time.Local().Format("2006-01-02 15:04:05.000")),
		"workerId":  strconv.Itoa(p.Worker), "sequenceId": strconv.FormatInt(p.Sequence, 10),
	}
	if err != nil {
		bad = fmt.Errorf("%+.40q is no snowflake: want a decimal number", given[0])
	}
	if bad != nil {
		answer = map[string]string{"errorMsg": bad.Error()}
	}
	body, _ := json.Marshal(answer)
	write(w, 200, asJSON, body)
}

// refuse answers with Leaf's failure for an error of package client.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	said, refused := errors.AsType[*subjects.Error](err)
	status, number := 503, -1 // no worker serves
	switch {
	case errors.Is(err, client.ErrUnknownTag):
		status, number = 500, -2
	case refused && said.Code == subjects.BadRequest:
		fail(w, r, 400, "java.lang.IllegalArgumentException", said.Text, said)
		return
	case errors.Is(err, client.ErrThrottled), errors.Is(err, client.ErrBusy):
		status, number = 429, -3
	case errors.Is(err, client.ErrUsedUp):
		status, number = 410, -3
	case errors.Is(err, client.ErrUnavailable):
		number = -3 // workers serve, and have no ID now
	}
	said = cmp.Or(said, subjects.Errorf(subjects.Code(status), "%v", err)) // a worker's own error comes first
	fail(w, r, status, "com.sankuai.inf.leaf.server.exception.LeafServerException",
		fmt.Sprintf("Result{id=%d, status=EXCEPTION}", number), said) // Leaf reports its error numbers in this text
}

// fail answers as Spring Boot does. If said is not nil, the answer also has the headers of an error over NATS.
func fail(w http.ResponseWriter, r *http.Request, status int, exception, message string, said *subjects.Error) {
	if said != nil {
		maps.Copy(w.Header(), said.Headers())
	}
	if subjects.Code(status).Retry() {
		after := cmp.Or(said.RetryAfter, time.Second)
		w.Header().Set("Retry-After", strconv.Itoa(int((after+time.Second-1)/time.Second)))
	}
	body, _ := json.Marshal(struct {
		Timestamp int64  `json:"timestamp"`
		Status    int    `json:"status"`
		Error     string `json:"error"`
		Exception string `json:"exception,omitempty"`
		Message   string `json:"message"`
		Path      string `json:"path"`
	}{time.Now().UnixMilli(), status, http.StatusText(status), exception, message, r.URL.Path})
	write(w, status, asJSON, body)
}

func write(w http.ResponseWriter, status int, kind string, body []byte) {
	w.Header()["Content-Type"] = []string{kind}
	w.WriteHeader(status)
	_, _ = w.Write(body) // it fails if the caller is gone
}
