package leafhttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/worker"
)

// A fault is an answer without an ID.
type fault struct {
	status    int
	exception string // name of the Java exception
	message   string
	retry     time.Duration   // how long to wait before the request is repeated; 0 if a repeat is useless
	said      *subjects.Error // the error that a caller over NATS would get; may be nil
}

// Exceptions of Leaf's server.
const (
	leafException     = "com.sankuai.inf.leaf.server.exception.LeafServerException"
	argumentException = "java.lang.IllegalArgumentException"
	missingException  = "org.springframework.web.bind.MissingServletRequestParameterException"
)

// Leaf's numbers for why there is no ID of a tag. A snowflake has the first if the worker cannot issue, and the last
// if its clock is behind.
const (
	notInitialised = -1
	unknownTag     = -2
	notReady       = -3
)

// resultOf returns the message in which Leaf hides a number.
func resultOf(number int) string { return fmt.Sprintf("Result{id=%d, status=EXCEPTION}", number) }

// retryUnavailable is when to repeat a request that cannot be served now.
const retryUnavailable = time.Second

// segmentFault returns the fault of a refused request for IDs of a tag. Leaf treats a malformed name as an unknown
// tag.
func segmentFault(tag string, err error) fault {
	switch {
	case subjects.CheckTag(tag) != nil, errors.Is(err, segment.ErrUnknownTag):
		f := faultOf(err, unknownTag)
		f.status, f.exception, f.message = http.StatusInternalServerError, leafException, resultOf(unknownTag)
		return f
	case errors.Is(err, segment.ErrNotLoaded):
		return faultOf(err, notReady)
	}
	return faultOf(err, notInitialised)
}

// snowflakeFault returns the fault of a refused request for snowflakes.
func snowflakeFault(err error) fault {
	if _, behind := errors.AsType[*snowflake.BehindError](err); behind {
		return faultOf(err, notReady)
	}
	return faultOf(err, notInitialised)
}

// faultOf returns the fault for a refusal; number is Leaf's, if Leaf has that refusal.
func faultOf(err error, number int) fault {
	said := err.(*worker.Refusal).Said
	f := fault{status: http.StatusInternalServerError, exception: leafException, message: resultOf(number), said: said}
	switch said.Code {
	case subjects.Unavailable:
		f.status, f.retry = http.StatusServiceUnavailable, retryUnavailable
	case subjects.TooMany:
		f.status, f.retry, f.message = http.StatusTooManyRequests, said.RetryAfter, resultOf(notReady)
	case subjects.BadRequest:
		f.status, f.exception, f.message = http.StatusBadRequest, argumentException, said.Text
	}
	return f
}

// write writes the fault as Spring Boot does, and adds the headers that a caller over NATS would get.
func (f fault) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	if f.said != nil {
		for name, values := range f.said.Headers() {
			h[name] = values
		}
	}
	if f.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(int((f.retry+time.Second-1)/time.Second)))
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
	body, err := json.Marshal(v)
	if err != nil {
		panic(err) // a bug: no value here can fail
	}
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	w.WriteHeader(status)
	_, _ = w.Write(body) // it fails if the caller is gone
}

func notFound(w http.ResponseWriter, r *http.Request) {
	fault{status: http.StatusNotFound, message: "No message available"}.write(w, r)
}

// crowded answers on a connection beyond maxConnections.
func crowded(w http.ResponseWriter, r *http.Request) {
	fault{
		status: http.StatusServiceUnavailable, exception: leafException, retry: retryUnavailable,
		message: "too many connections are open: share them, or reach other workers",
	}.write(w, r)
}
