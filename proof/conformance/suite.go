package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/natsid/natsid/proof/conformance/internal/contract"
	"github.com/natsid/natsid/proof/conformance/internal/rig"
	"github.com/natsid/natsid/proof/conformance/internal/scenarios"
	"github.com/natsid/natsid/subjects"
)

// command plays scenarios with adapters, as one command line says.
func command(ctx context.Context, args []string, out io.Writer) error {
	f, adapters := flagSet()
	f.SetOutput(out)
	only := f.String("run", ".*", "play the scenarios whose whole name matches this `pattern`")
	parallel := f.Int("parallel", 4, "how many scenarios play at a time")
	list := f.Bool("list", false, "list the scenarios with their laws")
	if err := f.Parse(args); err != nil {
		return err
	}
	match, err := matching(*only)
	switch {
	case err != nil:
		return err
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %s", f.Arg(0))
	case *list:
		return listScenarios(out)
	}
	all, err := adapters(ctx)
	if err != nil {
		return err
	}
	s, err := newSuite()
	if err != nil {
		return err
	}
	defer s.close()
	var reports []report
	for _, a := range all {
		reports = append(reports, s.run(ctx, a, match, max(1, *parallel)))
	}
	printTable(out, reports)
	if slices.ContainsFunc(reports, report.isShort) {
		return errShort
	}
	return ctx.Err()
}

// matching returns the pattern of names of scenarios, at least one of which matches.
func matching(pattern string) (*regexp.Regexp, error) {
	match, err := regexp.Compile("^(" + pattern + ")$")
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(scenarios.All, func(sc scenarios.Scenario) bool { return match.MatchString(sc.Name) }) {
		return nil, fmt.Errorf("no scenario has the name %s: -list shows them", pattern)
	}
	return match, nil
}

func listScenarios(out io.Writer) error {
	for _, sc := range scenarios.All {
		profile := ""
		if sc.Wire {
			profile = "wire"
		}
		fmt.Fprintf(out, "%-17s %-10s %-5s %s\n", sc.Name, sc.Law, profile, sc.Says)
	}
	return nil
}

// A suite is what all adapters are tested against.
type suite struct {
	dir    string
	world  scenarios.World
	stop   []func()
	stages int // namespaces that were used
}

// newSuite starts a nats-server and a worker.
func newSuite() (s *suite, err error) {
	s = &suite{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "conformance-"); err != nil {
		return nil, err
	}
	s.stop = append(s.stop, func() { _ = os.RemoveAll(s.dir) })
	server, err := rig.StartServer(filepath.Join(s.dir, "nats"))
	if err != nil {
		return nil, err
	}
	s.stop = append(s.stop, server.WaitForShutdown, server.Shutdown)
	s.world = scenarios.World{NATS: server.ClientURL(), Natsid: sync.OnceValues(s.startNatsid)}
	if s.world.Vectors, err = fs.Sub(assets, "vectors"); err != nil {
		return nil, err
	}
	s.world.Contract, err = readContract()
	return s, err
}

func readContract() (*contract.Contract, error) {
	file, err := assets.ReadFile("contract.json")
	if err != nil {
		return nil, err
	}
	return contract.Parse(file)
}

// startNatsid starts a worker, and returns its namespace.
func (s *suite) startNatsid() (string, error) {
	worker, err := rig.StartNatsid(s.dir, s.world.NATS, "--max-clock-skew", "1ms")
	if err != nil {
		return "", err
	}
	s.stop = append(s.stop, worker.Kill)
	return string(subjects.DefaultNamespace), nil
}

func (s *suite) close() {
	for _, f := range slices.Backward(s.stop) {
		f()
	}
}

// A report is the results of one adapter.
type report struct {
	name    string
	fault   error // of the adapter as a whole
	results map[string]result
	took    time.Duration
}

// A result is that of one scenario.
type result struct {
	err  error // nil if the client does as the law says
	took time.Duration
}

func (r report) isShort() bool {
	if r.fault != nil {
		return true
	}
	for _, one := range r.results {
		if one.err != nil {
			return true
		}
	}
	return false
}

// run plays the matching scenarios with an adapter.
func (s *suite) run(ctx context.Context, a adapterOf, match *regexp.Regexp, parallel int) report {
	began := time.Now()
	w := s.world
	w.Command, w.Profile = a.command(), a.Profile
	d, err := w.Describe()
	r := report{name: d.Language, fault: err, results: map[string]result{}}
	if r.name == "" {
		r.name = strings.Join(a.Adapter, " ")
	}
	if d.Profile == "" {
		return r
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	places := make(chan struct{}, parallel)
	for _, sc := range scenarios.For(d.Profile) {
		if !match.MatchString(sc.Name) || ctx.Err() != nil {
			continue
		}
		places <- struct{}{}
		s.stages++
		ns := fmt.Sprint("c", s.stages)
		wg.Go(func() {
			defer func() { <-places }()
			one := play(&w, sc, d.Profile, ns)
			mu.Lock()
			defer mu.Unlock()
			r.results[sc.Name] = one
		})
	}
	wg.Wait()
	r.took = time.Since(began)
	return r
}

func play(w *scenarios.World, sc scenarios.Scenario, profile, ns string) result {
	began := time.Now()
	err := w.Play(sc, profile, ns)
	return result{err, time.Since(began)}
}

// printTable prints a row for each scenario and a column for each adapter, and then why clients fall short.
func printTable(out io.Writer, reports []report) {
	fmt.Fprintf(out, "%-17s", "scenario")
	for _, r := range reports {
		fmt.Fprintf(out, " %14s", r.name)
	}
	fmt.Fprintln(out)
	for _, sc := range scenarios.All {
		row, played := fmt.Sprintf("%-17s", sc.Name), false
		for _, r := range reports {
			one, ok := r.results[sc.Name]
			played = played || ok
			row += fmt.Sprintf(" %14s", cell(one, ok))
		}
		if played {
			fmt.Fprintln(out, row)
		}
	}
	for _, r := range reports {
		printShort(out, r)
	}
}

func cell(one result, played bool) string {
	took := fmt.Sprintf("%.1f s", one.took.Seconds())
	switch {
	case !played:
		return "-"
	case one.err != nil:
		return "FALLS SHORT"
	}
	return took
}

func printShort(out io.Writer, r report) {
	passed := 0
	for _, sc := range scenarios.All {
		one, ok := r.results[sc.Name]
		switch {
		case ok && one.err == nil:
			passed++
		case ok:
			fmt.Fprintf(out, "\n%s falls short of %q (%s: %s):\n%v\n", r.name, sc.Name, sc.Law, sc.Says, one.err)
		}
	}
	if r.fault != nil {
		fmt.Fprintf(out, "\n%s falls short of the contract:\n%v\n", r.name, r.fault)
	}
	fmt.Fprintf(out, "\n%s: %d of %d scenarios in %.0f s\n", r.name, passed, len(r.results), r.took.Seconds())
}
