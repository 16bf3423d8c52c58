//go:build linux

package main

import (
	_ "embed"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"
)

// tell prints one result as it comes.
func tell(opt options, r result) {
	verdict := "ok"
	switch {
	case len(r.trouble) > 0:
		verdict = "FAILED"
	case r.skipped != "":
		verdict = "not played: " + r.skipped
	}
	text := fmt.Sprintf("%-26s %-8s %s\n", r.name, r.onClockStep, verdict)
	if opt.verbose || len(r.trouble) > 0 {
		text += "    " + strings.Join(r.story, "\n    ") + "\n"
	}
	fmt.Fprint(os.Stderr, text, r.logs)
}

// report prints the table, writes it as Markdown if that is wanted, and returns
// an error if anything was not as promised.
func report(opt options, bins binaries, results []result) error {
	printTable(results)
	failed := 0
	for _, r := range results {
		if len(r.trouble) > 0 {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d faults cost more than they may", failed, len(results))
	}
	if opt.markdown == "" {
		return nil
	}
	return writeMarkdown(opt, bins, results)
}

var columns = []string{"fault", "", "requests", "IDs", "repeats", "not answered with IDs", "gap: snowflake", "long", "short", "well after", "alarms"}

func (r result) cells() []string {
	if r.skipped != "" {
		return []string{r.name, r.onClockStep, "not played", "", "", "", "", "", "", "", ""}
	}
	return []string{
		r.name, r.onClockStep, fmt.Sprint(r.requests), fmt.Sprint(r.ids), fmt.Sprint(r.repeats), counts(r.failures),
		seconds(r.gaps[snowflake]), seconds(r.gaps[long]), seconds(r.gaps[short]), seconds(r.recovered), counts(r.alarms),
	}
}

func printTable(results []result) {
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(columns, "\t"))
	for _, r := range results {
		fmt.Fprintln(t, strings.Join(r.cells(), "\t"))
	}
	_ = t.Flush() // standard output
	fmt.Println(totals(results))
}

func totals(results []result) string {
	var played, requests, ids, repeats int64
	for _, r := range results {
		if r.skipped == "" {
			played++
			requests, ids, repeats = requests+r.requests, ids+r.ids, repeats+r.repeats
		}
	}
	return fmt.Sprintf("%d scenes, %d requests, %d IDs, %d repeats.", played, requests, ids, repeats)
}

// counts returns "3 503, 1 silent", by name.
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
		"Command":  strings.Join(append([]string{"go run ./faults"}, os.Args[1:]...), " "),
		"When":     time.Now().UTC().Format(time.DateOnly),
		"Versions": fmt.Sprintf("%s on %s/%s with %d CPUs, %s, %s", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), bins.versions, database(results)),
		"Totals":   totals(results), "Rate": opt.rate, "Batch": opt.batch, "Parallel": opt.parallel,
		"Table": table(results), "Faults": legend(results),
	})
	if err != nil {
		return err
	}
	return f.Close()
}

func database(results []result) string {
	for _, r := range results {
		if r.database != "" {
			return r.database
		}
	}
	return "no MariaDB"
}

func table(results []result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, r := range results {
		fmt.Fprintf(&b, "\n| %s |", strings.Join(r.cells(), " | "))
	}
	return b.String()
}

// legend says of each fault that was played what it is and may cost.
func legend(results []result) string {
	var lines []string
	for _, f := range catalogue() {
		if slices.ContainsFunc(results, func(r result) bool { return r.name == f.name }) {
			lines = append(lines, fmt.Sprintf("- **%s**: %s. %s", f.name, f.does, f.cost()))
		}
	}
	return strings.Join(lines, "\n")
}

// cost says what a fault may cost.
func (f fault) cost() string {
	if f.random {
		return "May cost anything but a repeat, and all is well within " + f.backWithin().String() + " of its end."
	}
	parts := []string{"no request"}
	if len(f.may) > 0 {
		parts = nil
	}
	for _, t := range f.may {
		parts = append(parts, t.String())
	}
	text := "May cost " + strings.Join(parts, "; ")
	if f.gapWithin() != time.Second {
		text += fmt.Sprintf("; gaps up to %v", f.gapWithin())
	}
	text += fmt.Sprintf("; well again within %v.", f.backWithin())
	for _, kind := range slices.Sorted(maps.Keys(f.alarms)) {
		text += fmt.Sprintf(" Alarm `%s`: %s.", kind, f.alarms[kind])
	}
	return text
}

// String returns "up to 20 silent or cut of snowflake or short, up to 1s after its beginning".
func (t tolerance) String() string {
	most, of, when := "", "", "up to its end"
	if t.most > 0 {
		most = fmt.Sprintf("up to %d ", t.most)
	}
	if len(t.kinds) < int(kinds) {
		of = fmt.Sprintf(" of %s", t.kinds[0])
	}
	switch {
	case t.begin > 0:
		when = fmt.Sprintf("up to %v after its beginning", t.begin)
	case t.end > 0:
		when = fmt.Sprintf("up to %v after its end", t.end)
	}
	return fmt.Sprintf("%s%s%s, %s", most, strings.Join(t.what, "/"), of, when)
}
