package worker

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/subjects"
)

// An origin is whom a request came from, as its headers say.
type origin struct {
	Account string `json:"acc"`
	User    string `json:"user"`
	Host    string `json:"host"`
	Client  string `json:"name"` // how the client calls itself, of its own choice
}

// requestInfo is the header in which nats-server says whom a request came from, if it came from another account: by
// an import with `share: true` all, else the account alone.
const requestInfo = "Nats-Request-Info"

// serviceReply begins the reply subjects of requests from other accounts. nats-server makes them, and refuses those of
// clients.
const serviceReply = "_R_."

// originOf returns whom a request came from, as an attribute of a log line. It is called claimed where the header may
// be the caller's own. Nothing is decided by it.
func originOf(m *nats.Msg) slog.Attr {
	key := "claimed"
	if strings.HasPrefix(m.Reply, serviceReply) {
		key = "from"
	}
	var o origin
	if text := m.Header.Get(requestInfo); text == "" || json.Unmarshal([]byte(text), &o) != nil {
		return slog.Attr{} // which is not logged
	}
	var attrs []any
	for _, a := range [][2]string{{"account", o.Account}, {"user", o.User}, {"host", o.Host}, {"client", o.Client}} {
		if a[1] != "" {
			attrs = append(attrs, a[0], a[1][:min(len(a[1]), subjects.MaxTag)])
		}
	}
	return slog.Group(key, attrs...)
}

// logRequest logs a request that changes tags, and how it ended. Those that changed something, or may have, are all in
// the log, which internal/loglimit knows by their messages; of those that were refused it has one a minute.
func (a *tagAdmin) logRequest(endpoint string, m *nats.Msg, err error) {
	if endpoint == listEndpoint || len(m.Data) == 0 {
		return // it asks
	}
	var about struct {
		Tag string `json:"tag"`
	}
	_ = json.Unmarshal(m.Data, &about) // one that is malformed is refused
	attrs := []any{"request", endpoint, "tag", about.Tag[:min(len(about.Tag), subjects.MaxTag)], originOf(m)}
	switch {
	case err == nil:
		a.link.Log.Info("tags changed", attrs...)
	case changedNothing(err):
		a.link.Log.Warn("a request about tags was refused", append(attrs, "error", err)...)
	default:
		a.link.Log.Warn("tags may have changed", append(attrs, "error", err)...)
	}
}

// changedNothing reports whether err says that a request about tags changed none.
func changedNothing(err error) bool {
	e, ok := errors.AsType[*subjects.Error](err)
	return isRefusal(err) || ok && e.Code < subjects.Internal
}
