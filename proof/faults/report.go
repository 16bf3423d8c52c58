//go:build linux

package main

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"

	"github.com/natsid/natsid/internal/testkit/overload"
)

// printResult prints the result of one trial at its end.
func printResult(opt options, r result) {
	verdict := "ok"
	switch {
	case len(r.violations) > 0:
		verdict = "FAILED"
	case r.skipped != "":
		verdict = "skipped: " + r.skipped
	}
	text := fmt.Sprintf("%-26s %s\n", r.name, verdict)
	if opt.verbose || len(r.violations) > 0 {
		text += "    " + strings.Join(r.events, "\n    ") + "\n"
	}
	fmt.Fprint(os.Stderr, text, r.logs)
}

// report prints the table, writes it as Markdown if requested, and returns an error if a promise was broken.
func report(opt options, bins binaries, results []result) error {
	printTable(results)
	if opt.markdown != "" {
		if err := writeMarkdown(opt, bins, results); err != nil {
			return err
		}
	}
	if lines := broken(results); len(lines) > 0 {
		return fmt.Errorf("%d of %d trials broke a promise, see VIOLATION above:\n%s", len(lines), len(results),
			strings.Join(lines, "\n"))
	}
	return nil
}

// broken returns a line for each trial that broke a promise.
func broken(results []result) (lines []string) {
	for _, r := range results {
		if len(r.violations) > 0 {
			why := strings.Join(r.violations, "; ")
			lines = append(lines, fmt.Sprintf("- **%s broke a promise**: %s.", r.name, why))
		}
	}
	return lines
}

var columns = []string{
	"fault", "load", "requests", "IDs", "repeats", "without IDs", "gap: snowflake", "long", "short", "strict",
	"client: failed calls", "longest wait", "recovery", "alarms", "slowest bare write", "of marks' leader",
	"notes",
}

func (r result) cells() []string {
	if r.skipped != "" {
		row := make([]string, len(columns))
		copy(row, []string{r.name, "skipped"})
		return row
	}
	name := r.name
	if r.tries > 1 {
		name += fmt.Sprintf(" (try %d)", r.tries)
	}
	return []string{
		name, fmt.Sprintf("%.0f s", r.took.Seconds()),
		fmt.Sprint(r.requests), fmt.Sprint(r.ids), fmt.Sprint(r.repeats), counts(r.failures),
		seconds(r.gaps[snowflake]), seconds(r.gaps[long]), seconds(r.gaps[short]), seconds(r.gaps[strict]),
		counts(r.failedCalls), seconds(r.longest), seconds(r.recovered), counts(r.alarms),
		r.bare, r.leader, r.note,
	}
}

func printTable(results []result) {
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(columns, "\t"))
	for _, r := range results {
		fmt.Fprintln(t, strings.Join(r.cells(), "\t"))
	}
	fmt.Fprintln(t)
	for _, row := range overloadRows(results) {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	fmt.Fprintln(t)
	for _, row := range stampRows(results) {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	_ = t.Flush() // standard output
	fmt.Println(totals(results))
}

// overloadRows returns the outcomes of the requests of overloads, with a head; none if there was no overload.
func overloadRows(results []result) (rows [][]string) {
	for _, r := range results {
		if r.overload == nil {
			continue
		}
		if rows == nil {
			rows = append(rows, append([]string{"fault"}, overload.Columns...))
		}
		rows = append(rows, append([]string{r.name}, r.overload.Cells()...))
	}
	return rows
}

// stampRows returns the figures of stages, with a head; none if there was no stage.
func stampRows(results []result) (rows [][]string) {
	for _, r := range results {
		if r.stamp == nil {
			continue
		}
		if rows == nil {
			rows = append(rows, []string{"fault", "messages", "a second", "killed", "standstill"})
		}
		rows = append(rows, []string{r.name, fmt.Sprint(r.stamp.messages),
			fmt.Sprintf("%.0f", float64(r.stamp.messages)/r.stamp.took.Seconds()), fmt.Sprint(r.stamp.kills),
			seconds(r.stamp.standstill)})
	}
	return rows
}

func totals(results []result) string {
	var stamped uint64
	var trials, requests, calls, ids, repeats, grants int64
	var strict verdict
	for _, r := range results {
		if r.skipped == "" {
			trials++
			requests, calls = requests+r.requests, calls+r.calls
			ids, repeats, grants = ids+r.ids, repeats+r.repeats, grants+r.grants
			strict.add(r.order)
		}
		if r.stamp != nil {
			stamped += r.stamp.messages
		}
	}
	return fmt.Sprintf("%d trials, %d requests, %d calls through the client, %d messages stamped, %d IDs, %d repeats, "+
		"%d grants audited. Strict: %v.", trials, requests, calls, stamped, ids, repeats, grants, strict)
}

// counts returns "3 503, 1 timeout", by name.
func counts[K ~string, N int | int64](of map[K]N) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%d %s", of[k], k))
	}
	if parts == nil {
		return "-"
	}
	return strings.Join(parts, ", ")
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

//go:embed about.md
var about string

//go:embed record.md
var record string // no run changes it: defects are added by hand

func writeMarkdown(opt options, bins binaries, results []result) error {
	page, err := template.New("about.md").Parse(about)
	if err != nil {
		return err
	}
	f, err := os.Create(opt.markdown)
	if err != nil {
		return err
	}
	defer f.Close()
	err = page.Execute(f, map[string]any{
		"Command":  strings.Join(append([]string{"go run ./proof/faults"}, os.Args[1:]...), " "),
		"When":     time.Now().UTC().Format(time.DateOnly),
		"Versions": versions(bins, results),
		"Totals":   totals(results), "Broken": broken(results),
		"Seed": opt.seed, "Rate": opt.rate, "Calls": opt.rate / callsPer,
		"Patience": patience, "Batch": opt.batch, "Parallel": opt.parallel,
		"Table": filepath.Base(tableOf(opt.markdown)), "Overload": markdownTable(
			pick(overloadRows(results), "fault", "capacity/s", "of capacity", "never", "well after")),
		"Stamping": markdownTable(pick(stampRows(results), "fault", "messages", "killed", "standstill")),
		"Record":   strings.TrimSpace(record),
	})
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return err
	}
	return writeTable(tableOf(opt.markdown), results)
}

// tableOf returns the path of a report's table: beside the report.
func tableOf(report string) string { return strings.TrimSuffix(report, ".md") + ".csv" }

// writeTable writes all results as CSV, with the summary and the permitted cost of each fault.
func writeTable(path string, results []result) error {
	does := make(map[string]fault)
	for _, f := range catalogue() {
		does[f.name] = f
	}
	rows := [][]string{append(slices.Clone(columns), "what happens", "what it may cost")}
	for _, r := range results {
		f := does[r.name]
		rows = append(rows, append(r.cells(), f.summary, f.cost()))
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err = csv.NewWriter(f).WriteAll(rows); err != nil {
		return err
	}
	return f.Close()
}

func versions(bins binaries, results []result) string {
	return fmt.Sprintf("%s on %s/%s with %d CPUs, %s, %s", runtime.Version(), runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU(), bins.versions, database(results))
}

func database(results []result) string {
	for _, r := range results {
		if r.database != "" {
			return r.database
		}
	}
	return "no MariaDB"
}

// pick returns the named columns of a table with a head.
func pick(rows [][]string, names ...string) (picked [][]string) {
	for _, row := range rows {
		var cells []string
		for _, name := range names {
			cells = append(cells, row[slices.Index(rows[0], name)])
		}
		picked = append(picked, cells)
	}
	return picked
}

func markdownTable(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(&b, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
	return strings.TrimSpace(b.String())
}

// cost describes the permitted cost of a fault.
func (f fault) cost() string {
	if f.random {
		return fmt.Sprintf("anything but a repeat; recovery within %v of its end.", f.recoveryLimit())
	}
	parts := []string{"no request"}
	if len(f.losses) > 0 {
		parts = nil
	}
	for _, t := range f.losses {
		parts = append(parts, t.String())
	}
	text := strings.Join(parts, "; ")
	switch {
	case f.single && f.shortGap > patience:
		text += "; no call through the client but of short and strict"
	case f.single || len(f.losses) == 0:
		text += "; no call through the client"
	}
	if f.gapLimit() != time.Second {
		text += fmt.Sprintf("; gaps up to %v", f.gapLimit())
	}
	if f.shortGap > 0 {
		text += fmt.Sprintf("; gaps of short and strict up to %v", f.shortGap)
	}
	text += fmt.Sprintf("; recovery within %v.", f.recoveryLimit())
	for _, kind := range slices.Sorted(maps.Keys(f.alarms)) {
		text += fmt.Sprintf(" Alarm `%s`: %s.", kind, f.alarms[kind])
	}
	return text
}

// String returns "up to 20 timeout/disconnected of snowflake, up to 1s after its start".
func (l loss) String() string {
	most, of, when := "", "", "up to its end"
	if l.most > 0 {
		most = fmt.Sprintf("up to %d ", l.most)
	}
	if len(l.kinds) < int(kinds) {
		of = fmt.Sprintf(" of %s", l.kinds[0])
	}
	switch {
	case l.cause.name != "":
		when = l.cause.name
	case l.afterStart > 0:
		when = fmt.Sprintf("up to %v after its start", l.afterStart)
	case l.afterEnd > 0:
		when = fmt.Sprintf("up to %v after its end", l.afterEnd)
	}
	return fmt.Sprintf("%s%s%s, %s", most, strings.Join(l.outcomes, "/"), of, when)
}
