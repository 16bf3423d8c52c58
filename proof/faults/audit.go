//go:build linux

package main

import (
	"context"
	"encoding/json"
	"github.com/natsid/natsid/internal/wire"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// auditWithin bounds an audit. An audit that JetStream does not answer ends by itself before that, with the reason.
const auditWithin = 90 * time.Second

// An audit is the output of `natsid audit --json`.
type audit struct {
	Verdict  string
	Loads    int64
	Windows  int
	Missing  uint64
	Findings []struct{ Verdict, What, Message string }
}

// audit runs natsid's audit of the workers' records, on each JetStream, and returns how many grants it checked. An ID
// that was granted twice broke the law, whether or not a caller got it twice, unless the trial sets the marks back:
// then workers load IDs again, and discard them. An ID that is not proven broke nothing: trials take marks away.
func (t *trial) audit() (grants int64) {
	links := []*link{t.load.links[0]}
	if t.fleet.leaf != noLeaf {
		links = append(links, t.load.links[len(t.load.links)-1])
	}
	for _, l := range links {
		grants += t.auditAt(l.nc.ConnectedUrl())
	}
	return grants
}

func (t *trial) auditAt(url string) (grants int64) {
	if url == "" {
		url = t.conn().ConnectedUrl()
	}
	ctx, cancel := context.WithTimeout(t.ctx, auditWithin)
	defer cancel()
	c := exec.CommandContext(ctx, t.bins.natsid, "audit", "--json", "--nats", url)
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NATS") })
	var said strings.Builder
	c.Stderr = &said
	began := time.Now()
	out, err := c.Output()
	if text := strings.TrimSpace(said.String()); text != "" {
		t.logf("the audit took %v, and said: %s", time.Since(began).Round(time.Millisecond), text)
	}
	var a audit
	if json.Unmarshal(out, &a) != nil {
		t.violation("the audit at %s failed: %v: %s", url, err, said.String())
		return 0
	}
	t.logf("audit: %s; %d loads and %d windows; %d entries missing", a.Verdict, a.Loads, a.Windows, a.Missing)
	_, wentBack := t.fault.alarms[wire.AlarmMarksWentBack]
	for _, x := range a.Findings {
		if x.Verdict != "repeated" || wentBack && strings.HasPrefix(x.What, "tag ") {
			t.logf("%s: %s: %s", x.Verdict, x.What, x.Message)
			continue
		}
		t.wrong("audit: %s: %s", x.What, x.Message)
	}
	return a.Loads + int64(a.Windows)
}
