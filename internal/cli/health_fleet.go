package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/natsid/natsid/subjects"
)

// fleetJSON is the output of `natsid health --fleet`.
type fleetJSON struct {
	Versions []versionOf `json:"versions"`
	NotReady []string    `json:"not_ready"` // worker, mode and reason
	Agree    bool        `json:"agree"`     // all write the same formats
}

// versionOf is the workers of one version.
type versionOf struct {
	Version string   `json:"version"`
	Formats string   `json:"formats"` // in which they write, such as "grants=1 marks=1 numbers=1"
	Workers []string `json:"workers"`
}

// fleetHealth asks all workers.
func fleetHealth(s *session) error {
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	answers := askWorkers(s.ctx, nc, s.namespace().SegmentPing(), time.Second)
	if len(answers) == 0 {
		return cmp.Or(s.missing(), error(nobodyError{
			errors.New("no worker answers: start one, or name another server, namespace or user"),
		}))
	}
	f := fleetOf(answers)
	if err := s.print(f, f.print); err != nil {
		return err
	}
	switch {
	case !f.Agree:
		return errors.New("the versions write different formats: one that reads the older format cannot start again " +
			"once the newer one has written; finish the upgrade, or roll it back by the rules of its release")
	case len(f.NotReady) > 0:
		return errors.New(strings.Join(f.NotReady, "; "))
	}
	return nil
}

func fleetOf(answers []micro.Ping) (f fleetJSON) {
	byVersion, formats := make(map[[2]string][]string), make(map[string]bool)
	for _, a := range answers {
		m := a.Metadata
		name, format := m[subjects.MetaInstance], m[subjects.MetaFormats]
		formats[format] = true
		byVersion[[2]string{a.Version, format}] = append(byVersion[[2]string{a.Version, format}], name)
		for _, mode := range []string{"segment", "snowflake"} {
			if m[mode] != subjects.Ready {
				f.NotReady = append(f.NotReady, fmt.Sprintf("%s: %s: %s", name, mode, m[mode]))
			}
		}
	}
	for key := range maps.Keys(byVersion) {
		f.Versions = append(f.Versions, versionOf{key[0], key[1], byVersion[key]})
	}
	slices.SortFunc(f.Versions, func(a, b versionOf) int { return strings.Compare(a.Version, b.Version) })
	f.Agree = len(formats) == 1
	return f
}

func (f fleetJSON) print(out io.Writer) {
	for _, v := range f.Versions {
		fmt.Fprintf(out, "natsid %s (%s): %s\n", v.Version, v.Formats, strings.Join(v.Workers, ", "))
	}
	if f.Agree && len(f.Versions) > 1 {
		fmt.Fprintln(out, "All write the same formats, so each can take the place of any.")
	}
}
