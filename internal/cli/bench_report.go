package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/natsid/natsid/internal/measure"
	"github.com/natsid/natsid/subjects"
)

// announce prints the plan of the measurement.
func (b *bench) announce() {
	beside := ", in turns with a bare echo"
	if b.noEcho != nil {
		beside = ""
	}
	fmt.Fprintf(b.s.stderr, "%s, %s a call, for %v%s.\n",
		numberOf(b.Callers, "caller"), numberOf(b.Batch, "ID"), b.Duration, beside)
	if b.noEcho != nil {
		fmt.Fprintf(b.s.stderr, "There is no bare echo to compare with: %v.\n", b.noEcho)
	}
	if b.tag == "" {
		return // each tick of the clock brings more snowflakes
	}
	more := ""
	if !b.bare() {
		more = ", and those of requests that the client repeats"
	}
	fmt.Fprintf(b.s.stderr, "At most %d IDs of tag %s are used up%s.\n", b.maxIDs, b.tag, more)
}

// progress prints the figures of one turn of each.
func (b *bench) progress(natsid, echo *measure.Figures) {
	line := fmt.Sprintf("%6v: %s", b.natsid.Took.Round(100*time.Millisecond), inShort(natsid))
	if b.noEcho == nil {
		line += "; bare echo " + inShort(echo)
	}
	fmt.Fprintln(b.s.stderr, line)
}

func inShort(f *measure.Figures) string {
	text := fmt.Sprintf("%s calls/s, p50 %s, p99 %s",
		rate(subjects.Fraction(f.PerSecond())), short(f.Latency(0.5)), short(f.Latency(0.99)))
	for _, name := range slices.Sorted(maps.Keys(f.Errors)) {
		text += fmt.Sprintf(", error %s: %d", name, f.Errors[name].Count)
	}
	return text
}

// short returns a duration with three digits, in ASCII.
func short(d time.Duration) string {
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return strings.Replace(d.Round(unit).String(), "µ", "u", 1)
}

// percentiles are the printed percentiles of latencies.
var percentiles = []struct {
	part       float64
	head, name string
}{
	{0.5, "P50", "p50"}, {0.9, "P90", "p90"}, {0.99, "P99", "p99"}, {0.999, "P99.9", "p99_9"}, {1, "LONGEST", "max"},
}

// print prints the figures. It returns an error if no call got IDs.
func (b *bench) print() error {
	if missing := b.s.missing(); missing != nil {
		return missing
	}
	if err := b.s.print(b.report(), b.printTable); err != nil || b.natsid.Calls > 0 || b.natsid.Failed() == 0 {
		return err
	}
	return errors.New("no call got IDs")
}

func (b *bench) printTable(table io.Writer) {
	fmt.Fprint(table, "\tCALLS/S\tREQUESTS/S\tIDS/S")
	for _, p := range percentiles {
		fmt.Fprint(table, "\t"+p.head)
	}
	fmt.Fprintln(table, "\tERRORS")
	row(table, "natsid", &b.natsid, b.requests, fmt.Sprintf("%.0f", b.natsid.PerSecond()*float64(b.Batch)))
	if b.noEcho == nil {
		row(table, "bare echo", &b.echo, b.echo.Made, "-")
	}
	for _, line := range b.remarks() {
		fmt.Fprintln(table, line)
	}
}

func row(table io.Writer, name string, f *measure.Figures, requests int64, ids string) {
	fmt.Fprintf(table, "%s\t%s\t%s\t%s", name,
		rate(subjects.Fraction(f.PerSecond())), rate(subjects.Fraction(perSecond(requests, f))), ids)
	for _, p := range percentiles {
		fmt.Fprint(table, "\t"+short(f.Latency(p.part)))
	}
	fmt.Fprintf(table, "\t%d\n", f.Failed())
}

func perSecond(n int64, f *measure.Figures) float64 { return float64(n) / max(f.Took.Seconds(), 1e-9) }

// remarks returns the lines below the table.
func (b *bench) remarks() (lines []string) {
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if r := b.ratios; len(r) > 0 && b.Rate == 0 {
		say("natsid / bare echo, calls/s: %.2f (%.2f to %.2f in %s)",
			median(r), slices.Min(r), slices.Max(r), numberOf(len(r), "turn"))
	}
	for _, name := range slices.Sorted(maps.Keys(b.natsid.Errors)) {
		e := b.natsid.Errors[name]
		say("error %s: %d, the first: %v", name, e.Count, e.First)
	}
	if e := b.echo.Failed(); e > 0 {
		say("the bare echo had %s: NATS itself is in trouble, or this machine", numberOf(int(e), "error"))
	}
	if n := b.repeated(); n > 0 && !b.bare() {
		say("the client repeated %s, without an answer or refused", numberOf(int(n), "request"))
	}
	if b.natsid.NotMade > 0 {
		say("%d calls fell due and were not made, since all callers waited: natsid or NATS is slower than --rate, "+
			"or --callers too few", b.natsid.NotMade)
	}
	if b.tag != "" {
		most := ""
		if b.natsid.Failed() > 0 { // some of the failed ones may have drawn their IDs
			most = "at most "
		}
		say("%s%d IDs of tag %s were used up", most, b.used(), b.tag)
	}
	if b.spent {
		say("the measurement ended after %v, since --max-ids allows no more", b.natsid.Took.Round(time.Millisecond))
	}
	if b.s.ctx.Err() != nil {
		say("the measurement was interrupted after %v", b.natsid.Took.Round(time.Millisecond))
	}
	return lines
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// A benchReport is the JSON of a measurement. Times are in seconds.
type benchReport struct {
	Tag         string  `json:"tag,omitempty"` // of segments
	Callers     int     `json:"callers"`
	Batch       int     `json:"batch"`
	Merge       bool    `json:"merge"`
	Prefetch    int     `json:"prefetch"`
	Rate        float64 `json:"rate"` // 0: no rate
	Interrupted bool    `json:"interrupted"`
	benchFigures
	IDsPerSecond float64       `json:"ids_per_second"`
	IDsUsed      int64         `json:"ids_used"`             // upper bound
	Repeated     int64         `json:"repeated"`             // requests, by the client
	Echo         *benchFigures `json:"echo,omitempty"`       // of a bare echo
	EchoRatio    float64       `json:"echo_ratio,omitempty"` // calls/s over the echo's, the median of the turns
}

// benchFigures are the figures of natsid, or of the echo.
type benchFigures struct {
	Seconds           float64            `json:"seconds"`
	Calls             int64              `json:"calls"` // calls that got IDs
	CallsPerSecond    float64            `json:"calls_per_second"`
	RequestsPerSecond float64            `json:"requests_per_second"` // requests sent
	NotMade           int64              `json:"not_made"`            // calls that fell due while all callers waited
	Latency           map[string]float64 `json:"latency"`
	Errors            map[string]int64   `json:"errors"` // calls that failed, by code or kind
}

func figuresOf(f *measure.Figures, requests int64) benchFigures {
	out := benchFigures{
		Seconds: f.Took.Seconds(), Calls: f.Calls, CallsPerSecond: f.PerSecond(),
		RequestsPerSecond: perSecond(requests, f), NotMade: f.NotMade,
		Latency: map[string]float64{}, Errors: map[string]int64{},
	}
	for _, p := range percentiles {
		out.Latency[p.name] = f.Latency(p.part).Seconds()
	}
	for name, e := range f.Errors {
		out.Errors[name] = e.Count
	}
	return out
}

func (b *bench) report() benchReport {
	r := benchReport{
		Tag: b.tag, Callers: b.Callers, Batch: b.Batch, Merge: b.Merge, Prefetch: b.Prefetch, Rate: b.Rate,
		Interrupted: b.s.ctx.Err() != nil, benchFigures: figuresOf(&b.natsid, b.requests),
		IDsPerSecond: b.natsid.PerSecond() * float64(b.Batch), IDsUsed: b.used(), Repeated: b.repeated(),
	}
	if b.noEcho == nil {
		echo := figuresOf(&b.echo, b.echo.Made)
		r.Echo = &echo
	}
	if len(b.ratios) > 0 {
		r.EchoRatio = median(b.ratios)
	}
	return r
}
