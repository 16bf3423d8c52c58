package tests

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/registry/rights"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/number"
)

// holderOn opens a holder on a NATS until the test ends.
func holderOn(t *testing.T, url string) *number.Holder {
	t.Helper()
	h, err := number.Open(t.Context(), natstest.Connect(t, url), number.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return h
}

// draws opens a holder, which issues an ID and is closed.
func draws(t *testing.T, nc *nats.Conn, cfg number.Config) error {
	h, err := number.Open(t.Context(), nc, cfg)
	if err != nil {
		return err
	}
	if _, err := h.Next(t.Context()); err != nil {
		t.Error(err)
	}
	return h.Close()
}

func TestAHolderNeedsWhatPermissionsPrintsAndNamesAllThatIsMissing(t *testing.T) {
	t.Parallel()
	of := rightsOf(rights.Holder)
	users := map[string]*server.Permissions{
		"worker": permitted(rights.Worker), "holder": allow(of),
		"none": {Publish: &server.SubjectPermission{Deny: []string{"$KV.>", "id.>"}}},
	}
	s := serverOf(t, users)
	seen := new(violations)
	s.SetLoggerV2(seen, false, false, false)
	startReady(t, urlOf(s, "worker"))
	first := natstest.Connect(t, urlOf(s, "holder"))
	h, err := number.Open(t.Context(), first, number.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // they ask one another
		if err := draws(t, first, number.Config{}); err != nil {
			t.Error(err)
		}
	}
	code, text := run(t, patient(t), "workers", "--nats="+urlOf(s, "worker"))
	if w, _ := h.Number(); code != 0 || !strings.Contains(text, fmt.Sprint(w)) || !strings.Contains(text, "PROGRAM") {
		t.Errorf("%d: %s", code, text)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	seen.report(t)
	err = draws(t, natstest.Connect(t, urlOf(s, "none")), number.Config{})
	for _, subject := range []string{"$KV.id_history.>", "$KV.id_workers.>", "id.worker.*", "id.registry.ask"} {
		if err == nil || !strings.Contains(err.Error(), subject) {
			t.Errorf("%v does not name %s", err, subject)
		}
	}
	var written []string
	for _, r := range slices.Concat(of.Publish, of.Subscribe) {
		written = append(written, r.Subject)
	}
	text = printed(t, "holder")
	if slices.ContainsFunc(written, func(s string) bool { return !strings.Contains(text, s) }) {
		t.Error(text)
	}
	if strings.Contains(strings.Join(written, " "), "segment") {
		t.Errorf("%v has rights to marks or requests", written)
	}
}
