//go:build unix

package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/natsid/natsid/conformance/internal/adapter"
	"github.com/natsid/natsid/conformance/internal/contract"
	"github.com/natsid/natsid/internal/testkit/ledger"
)

// A kind is IDs that are judged together, whichever language drew them.
type kind int

const (
	ofLoose kind = iota
	ofStrict
	ofFlakes
	kinds
)

// calmly is the name of the time without a fault.
const calmly = "calm"

// A judge has all IDs of all languages, and counts calls by language and fault.
type judge struct {
	ledgers [kinds]*ledger.Ledger
	order   ledger.Order // of the strict tag

	mu    sync.Mutex
	phase string
	cells map[cellKey]*cell
	ids   map[string]int64 // by client
}

type cellKey struct{ client, phase string }

// A cell is the calls of one client during one fault.
type cell struct {
	calls   int
	failed  map[string]int // by kind of error
	slowest time.Duration
}

func newJudge(dir string) *judge {
	j := &judge{phase: calmly, cells: map[cellKey]*cell{}, ids: map[string]int64{}}
	for k := range j.ledgers {
		j.ledgers[k] = ledger.New(dir)
	}
	return j
}

// enter says which fault strikes from now on.
func (j *judge) enter(phase string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.phase = phase
}

// A begun is a call under way.
type begun struct {
	client string
	kind   kind
	phase  string
	had    int64 // the highest strict ID that had arrived
	at     time.Time
}

// begin is called before a call is sent to its adapter.
func (j *judge) begin(client string, k kind) begun {
	j.mu.Lock()
	defer j.mu.Unlock()
	return begun{client, k, j.phase, j.order.Begin(), time.Now()}
}

// end judges the IDs of a call, and counts it: for the fault during which it began, or else ended.
func (j *judge) end(b begun, result json.RawMessage, err error) error {
	took := time.Since(b.at)
	runs, kinds := idsOf(result)
	if failure, ok := err.(*adapter.Failure); ok {
		kinds = map[string]int{failure.Data.Kind: 1}
	}
	n := int64(0)
	for _, r := range runs {
		n += r[1] - r[0] + 1
		if err := j.ledgers[b.kind].Add(r[0], r[1]); err != nil {
			return err
		}
		if b.kind == ofStrict {
			if _, err := j.order.End(b.had, r[0], r[1]); err != nil {
				return err
			}
		}
	}
	j.count(b, took, n, kinds)
	return nil
}

// idsOf returns the IDs of a result that the contract has allowed, and the errors of a burst.
func idsOf(result json.RawMessage) (runs [][2]int64, kinds map[string]int) {
	var r struct {
		ID    string
		IDs   []string
		Runs  [][2]string
		Kinds map[string]int
	}
	if result == nil || json.Unmarshal(result, &r) != nil {
		return nil, nil
	}
	if r.ID != "" {
		r.IDs = append(r.IDs, r.ID)
	}
	for _, id := range r.IDs {
		r.Runs = append(r.Runs, [2]string{id, id})
	}
	for _, run := range r.Runs {
		first, _ := strconv.ParseInt(run[0], 10, 64)
		last, _ := strconv.ParseInt(run[1], 10, 64)
		runs = append(runs, [2]int64{first, last})
	}
	return runs, r.Kinds
}

func (j *judge) count(b begun, took time.Duration, ids int64, failed map[string]int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if b.phase == calmly {
		b.phase = j.phase
	}
	key := cellKey{b.client, b.phase}
	c := j.cells[key]
	if c == nil {
		c = &cell{failed: map[string]int{}}
		j.cells[key] = c
	}
	c.calls++
	c.slowest = max(c.slowest, took)
	for kind, n := range failed {
		c.failed[kind] += n
	}
	j.ids[b.client] += ids
}

func (c *cell) failures() (n int) {
	for _, of := range c.failed {
		n += of
	}
	return n
}

// verdict prints the table, and returns what was broken.
func (j *judge) verdict(cfg Config) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.printCalls(cfg)
	var broken []error
	repeats, total := int64(0), int64(0)
	for k := range j.ledgers {
		r, err := j.ledgers[k].Close()
		if err != nil {
			return err
		}
		repeats, total = repeats+r.Repeats, total+r.IDs
		if r.Repeats > 0 {
			broken = append(broken, fmt.Errorf("%d IDs were given twice, such as %v", r.Repeats, r.Examples))
		}
	}
	order := j.order.Report()
	if order.Inversions > 0 {
		broken = append(broken,
			fmt.Errorf("%d strict IDs came too late, such as %+v", order.Inversions, order.Examples))
	}
	fmt.Fprintf(cfg.Out, "\n%d IDs of all languages, %d repeats; %d strict answers, %d inversions\n",
		total, repeats, order.Answers, order.Inversions)
	for _, c := range cfg.Clients {
		broken = append(broken, j.printClient(cfg, c))
	}
	return errors.Join(broken...)
}

// printCalls prints a row for each fault.
func (j *judge) printCalls(cfg Config) {
	fmt.Fprintf(cfg.Out, "\n%-12s", "fault")
	for _, c := range cfg.Clients {
		fmt.Fprintf(cfg.Out, " | %-10s %7s %8s", c.Name, "failed", "slowest")
	}
	fmt.Fprintln(cfg.Out)
	names := []string{calmly}
	for _, f := range faults {
		names = append(names, f.name)
	}
	for _, phase := range names {
		fmt.Fprintf(cfg.Out, "%-12s", phase)
		for _, client := range cfg.Clients {
			c := j.cells[cellKey{client.Name, phase}]
			if c == nil {
				c = &cell{}
			}
			fmt.Fprintf(cfg.Out, " | %10d %7d %6.2f s", c.calls, c.failures(), c.slowest.Seconds())
		}
		fmt.Fprintln(cfg.Out)
	}
}

// printClient prints how many IDs a client drew and which errors it saw, and returns an error if it may see none, or
// drew nothing.
func (j *judge) printClient(cfg Config, c Client) error {
	all := map[string]int{}
	for key, cell := range j.cells {
		if key.client == c.Name {
			for kind, n := range cell.failed {
				all[kind] += n
			}
		}
	}
	saw := []string{}
	for _, kind := range slices.Sorted(maps.Keys(all)) {
		saw = append(saw, fmt.Sprintf("%d x %s", all[kind], kind))
	}
	text := strings.Join(saw, ", ")
	if text == "" {
		text = "no error"
	}
	fmt.Fprintf(cfg.Out, "%s: %d IDs, saw %s\n", c.Name, j.ids[c.Name], text)
	switch {
	case j.ids[c.Name] == 0:
		return fmt.Errorf("%s drew no ID", c.Name)
	case len(saw) > 0 && c.Profile == contract.Full:
		return fmt.Errorf("%s saw %s, though each fault struck one worker or one server", c.Name, text)
	}
	return nil
}
