package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/natsid/natsid/internal/app"
	"github.com/natsid/natsid/internal/buckets"
	"github.com/natsid/natsid/internal/grants"
	"github.com/natsid/natsid/lineage"
	"github.com/natsid/natsid/lineage/natsbus"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/segment/kvstore"
	"github.com/natsid/natsid/segment/mysqlstore"
	"github.com/natsid/natsid/subjects"
)

type resumeCmd struct {
	Restored     bool
	Since        since
	By           int64  `placeholder:"N"`
	AtLeast      string `placeholder:"FILE"`
	TableIsWhole bool
	Keep         string `placeholder:"REGISTRY"`
	Marks        string `placeholder:"FILE"`
	Cut          bool
	TagsComplete bool
	Yes          bool `short:"y"`
	DryRun       bool
}

func (*resumeCmd) help() help {
	return help{
		summary: "Resume a registry that its workers have stopped.",
		detail: `Workers stop all segments when the state behind them is not the one that they have
loaded from: a backup was restored, a disk lost its last seconds, the bucket was
made again, or another registry serves the same subjects. What was loaded since the
state that is found is unknown, so each tag is raised by more than that: by ten times
its highest pace on record, for the time since that state, and ten of its largest
loads. No ID repeats if no tag moved further, loads, raises and earlier resumes since
the backup all counted. Raised too far, a tag has a hole, which costs nothing.

The command shows what was found, who answers, and from where to where each tag goes.
Then it asks, waits until no worker uses what it loaded before, raises, and ends the
stop. Interrupted, or refused since a worker changed the incident, run it again.
At the end it asks whether each tag in use is there: until you confirm that, no tag is
created on first use.

Examples:
  natsid resume
  natsid resume --by 10000000                # raise each tag by that at least
  natsid resume --restored --since 24h       # a backup was restored, and no worker remembers
  natsid resume --table-is-whole --mysql DSN # only the marks went back, MySQL did not
  natsid resume --keep 5N7LAQLGLLR4UQACIRT2BJPGKX
  natsid resume --yes --tags-complete        # in a script`,
		values: map[string]string{
			"restored":       "Say that a backup was restored, though no worker has noticed.",
			"since":          "Of when the state found is, where no worker knows: as 2026-01-31T12:00:00Z, or 24h.",
			"by":             "Raise each tag by this at least.",
			"at-least":       "Raise tags at least to the marks in this file, lines of TAG MARK.",
			"table-is-whole": "Raise the marks to the rows of MySQL alone, which did not go back.",
			"keep":           "Of two registries, the one that serves: the one of the NATS that this command reaches.",
			"marks":          "The marks of the other registry, lines of TAG MARK, where its workers do not answer.",
			"cut":            "Go on though the other registry cannot be taken out: it was cut off.",
			"tags-complete":  "Say that each tag in use is in the bucket.",
			"yes":            "Do not ask.",
			"dry-run":        "Show what would be done.",
		},
	}
}

// Run implements the command.
func (c *resumeCmd) Run(s *session) error {
	if c.By < 0 || c.By > math.MaxInt64/4 {
		return usage(fmt.Errorf("--by %d: want 1 to %d", c.By, int64(math.MaxInt64/4)))
	}
	if c.Keep != "" && (c.Marks != "") != c.Cut {
		return usage(errors.New("--marks FILE and --cut go together: the marks of a registry that is cut off"))
	}
	least, err := marksIn(c.AtLeast)
	if err != nil {
		return err
	}
	others, err := marksIn(c.Marks)
	if err != nil {
		return err
	}
	nc, err := s.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := s.jetStream(nc)
	if err != nil {
		return err
	}
	streams, bucket := buckets.OnJetStream(js), s.namespace().SegmentBucket()
	report, err := kvstore.Inspect(s.ctx, streams, bucket)
	if errors.Is(err, buckets.ErrNoBucket) {
		return s.noMarks()
	}
	if err != nil {
		return fmt.Errorf("read bucket %s: %w", bucket, err)
	}
	kind := kindOf(report)
	if c.TableIsWhole {
		if report.Trouble == nil && kind != kvstore.Guarded {
			return usage(errNoTable)
		}
		kind = kvstore.Guarded
	}
	made := new(markWrites)
	store := kvstore.New(streams, kvstore.Config{Bucket: bucket, Kind: kind, Wrote: made.add})
	host, _ := os.Hostname() // a name for people
	bus := natsbus.New(nc, s.namespace())
	r := &resumption{
		resumeCmd: c, s: s, kind: kind, ask: bus.Ask, least: least, others: others,
		inspect: func() (kvstore.Report, error) { return kvstore.Inspect(s.ctx, streams, bucket) },
		o: lineage.Operator{
			Bucket: store.Own(), Tags: store, Kind: string(kind), Name: "natsid resume on " + host, Now: time.Now,
			Announce: bus.Announce, Step: app.DefaultStep,
		},
	}
	err = r.run(s.ctx)
	s.writeDown(context.WithoutCancel(s.ctx), streams, r.c.Identity, made.all)
	return err
}

// markWrites is the writes of marks that a command made. Several goroutines add to it.
type markWrites struct {
	mu  sync.Mutex
	all []grants.Write
}

func (w *markWrites) add(tag string, of segment.Write) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, app.WriteOf(tag, of))
}

// kindOf returns the kind that the identity names, or what the marks look like.
func kindOf(r kvstore.Report) kvstore.Kind {
	switch {
	case r.Trouble == nil:
		return kvstore.Kind(r.Identity.Kind)
	case r.Guards > 0:
		return kvstore.Guarded
	}
	return kvstore.Alone
}

// A resumption is one run of the command.
type resumption struct {
	*resumeCmd
	s       *session
	kind    kvstore.Kind
	ask     lineage.AskFunc
	least   map[string]int64  // of --at-least
	others  map[string]int64  // of --marks
	table   *mysqlstore.Table // that the marks guard; nil if none is named
	inspect func() (kvstore.Report, error)
	o       lineage.Operator
	c       lineage.Case
	report  resumeJSON
	agreed  bool
}

// mostTries bounds how often a resume begins again because a worker joins the incident.
const mostTries = 10

func (r *resumption) run(ctx context.Context) (err error) {
	if r.table, err = r.openTable(ctx); err != nil {
		return err
	}
	switch {
	case r.table != nil:
		defer r.table.Close()
		r.o.Limit = r.table.Limit()
	case r.kind == kvstore.Guarded:
		fmt.Fprintln(r.s.stderr,
			"The marks guard a table: with --mysql DSN no tag is raised beyond what its column holds.")
	}
	if r.c, err = r.o.Look(ctx, nil); err != nil {
		return err
	}
	if out := r.c.Identity.Out; out != "" && r.Keep == "" {
		return usage(fmt.Errorf("registry %s is out: registry %s serves instead; `natsid resume --keep %s` lets this "+
			"one serve again, and takes that one out", r.c.Identity.Registry, out, r.c.Identity.Registry))
	}
	declared, err := r.declare(ctx)
	if err != nil {
		return err
	}
	if !declared && r.c.Identity.Incident == nil {
		if r.By > 0 || r.AtLeast != "" || r.TableIsWhole || !r.Since.IsZero() {
			return usage(errors.New("the registry is not stopped, so nothing is raised: no worker has noticed " +
				"another state; if a backup was restored, say so with --restored"))
		}
		return r.confirm(ctx)
	}
	out := r.c.Identity.Out
	for range mostTries {
		if now := r.c.Identity.Out; now != out && now != "" {
			return fmt.Errorf("another operator has taken this registry out meanwhile, and keeps registry %s: agree "+
				"which one serves, then run the command again", now)
		}
		if err = r.try(ctx); !errors.Is(err, lineage.ErrChanged) {
			return err
		}
		if r.c, err = r.o.Look(ctx, &r.c); err != nil {
			return err
		}
	}
	return err
}

// declare opens an incident where no worker has: on the operator's word, or where the identity is missing.
func (r *resumption) declare(ctx context.Context) (declared bool, err error) {
	why := ""
	switch {
	case r.Restored:
		why = "an operator said that a backup was restored"
	case r.c.Missing != nil:
		why = "the identity of the bucket of marks is gone or damaged"
	case r.Keep != "" && r.c.Identity.Incident == nil:
		why = "an operator decided between two registries"
	default:
		return false, nil
	}
	own := r.c.Identity.Registry
	switch { // a fault in the flags must stop nobody
	case r.Keep != "" && r.Keep != own:
		return false, otherKept(r.Keep, own)
	case r.Keep == "" && !r.TableIsWhole && r.Since.IsZero():
		return false, errSince
	case r.DryRun:
		return true, nil
	case !r.Yes && !isTerminal(os.Stdin):
		return false, errNoTerminal
	}
	return true, r.o.Declare(ctx, &r.c, why)
}

var (
	errSince      = usage(errors.New("no worker knows of when the state is that was found: say so with --since"))
	errNoTable    = errors.New("--table-is-whole is for marks that guard a table: name that with --mysql")
	errNoTerminal = usage(errors.New("there is no terminal to ask on; give --yes"))
)

func otherKept(keep, own string) error {
	return usage(fmt.Errorf("--keep %s: this NATS reaches registry %s; reach the other one with --nats, or --js-domain",
		keep, own))
}

// try plans, asks, waits, raises and ends the stop.
func (r *resumption) try(ctx context.Context) error {
	to, err := r.targets(ctx)
	if err != nil {
		return err
	}
	raises, err := r.o.Raises(r.c, to)
	if err != nil {
		return err
	}
	if err := r.show(raises); err != nil || r.DryRun {
		return err
	}
	if r.c.Unfit != nil {
		return fmt.Errorf("correct the settings of the bucket first: %w", r.c.Unfit)
	}
	if err := r.agree("Raise the tags and resume?"); err != nil {
		return err
	}
	if err := r.takeOut(ctx); err != nil {
		return err
	}
	if err := r.wait(ctx); err != nil {
		return err
	}
	seen := r.c
	if r.c, err = r.o.Look(ctx, &seen); err != nil { // marks may have moved until all had stopped
		return err
	}
	if r.c.Identity.Out != seen.Identity.Out {
		return lineage.ErrChanged
	}
	if to, err = r.targets(ctx); err != nil {
		return err
	}
	if raises, err = r.o.Raises(r.c, to); err != nil {
		return err
	}
	r.report = r.describe(raises)
	if err := r.o.Plan(ctx, &r.c, raises); err != nil {
		return err
	}
	err = r.o.Raise(ctx, raises, func(done int) {
		fmt.Fprintf(r.s.stderr, "%d of %s raised\n", done, numberOf(len(raises), "tag"))
	})
	if err != nil {
		return fmt.Errorf("%w; run the command again: it continues above what is raised", err)
	}
	if err := r.o.End(ctx, &r.c, r.TagsComplete); err != nil {
		return err
	}
	fmt.Fprintf(r.s.stderr, "Registry %s is resumed; workers serve again within seconds.\n", r.c.Identity.Registry)
	return r.confirm(ctx)
}

// wait waits until no worker uses a load that did not know of the incident.
func (r *resumption) wait(ctx context.Context) error {
	left := r.o.Wait(r.c)
	if left <= 0 {
		return nil
	}
	fmt.Fprintf(r.s.stderr, "Waiting %s until no worker uses what it loaded before.\n", left.Round(time.Second))
	select {
	case <-time.After(left):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// targets returns how far each tag is to be raised.
func (r *resumption) targets(ctx context.Context) (map[string]int64, error) {
	in := r.c.Identity.Incident
	if in != nil && in.Cause == lineage.Second && r.Keep == "" {
		return nil, usage(fmt.Errorf("registries %s and %s serve the same subjects: say which one serves with --keep",
			r.c.Identity.Registry, in.Other))
	}
	to := maps.Clone(r.c.Marks)
	var err error
	switch {
	case r.Keep != "":
		err = r.addOther(ctx, to)
	case r.TableIsWhole:
		err = r.addRows(ctx, to)
	default:
		err = r.addDistance(to)
	}
	merge(to, r.least)
	for tag, mark := range r.c.Marks {
		to[tag] = max(to[tag], above(mark, r.By))
	}
	return to, err
}

func (r *resumption) addDistance(to map[string]int64) error {
	since := r.Since.Time
	in := r.c.Identity.Incident
	if in != nil && !in.Since().IsZero() && (since.IsZero() || in.Since().Before(since)) {
		since = in.Since() // a worker proved it
	}
	if in != nil && in.Cause == lineage.Lost && r.By == 0 && r.AtLeast == "" {
		return usage(errors.New("the marks are lost, and with them how fast tags were loaded: give --by N, N above " +
			"all that any worker which is gone may have loaded of a tag, or --at-least FILE"))
	}
	if since.IsZero() {
		return errSince
	}
	report, err := r.inspect()
	if err != nil {
		return err
	}
	distance, err := lineage.Distance(report.Records, since, time.Now())
	if errors.Is(err, lineage.ErrNoRecord) && (r.By > 0 || r.AtLeast != "") {
		return nil
	}
	if err != nil {
		return usage(fmt.Errorf("%w, so how far tags moved cannot be proposed: give --by N, N above all that was "+
			"loaded of a tag since the state found, or --at-least FILE", err))
	}
	for tag, by := range distance {
		to[tag] = max(to[tag], above(r.c.Marks[tag], by))
	}
	return nil
}

// above returns mark+by, or the highest mark that there is if that is higher.
func above(mark, by int64) int64 { return mark + min(by, math.MaxInt64-mark) }

// openTable opens the table that the marks guard; nil where none is named.
func (r *resumption) openTable(ctx context.Context) (*mysqlstore.Table, error) {
	cfg, err := r.s.validConfig()
	if err != nil || r.kind != kvstore.Guarded || !cfg.OnMySQL() {
		return nil, err
	}
	login, err := cfg.Database()
	if err != nil {
		return nil, err
	}
	return app.OpenTable(ctx, login)
}

// addRows raises the marks to the rows of the table that they guard.
func (r *resumption) addRows(ctx context.Context, to map[string]int64) error {
	if r.table == nil {
		return usage(errNoTable)
	}
	rows, err := r.table.AllRows(ctx)
	for _, row := range rows {
		to[row.Name] = max(to[row.Name], row.MaxID)
	}
	return err
}

// addOther raises the marks above those of the other registry.
func (r *resumption) addOther(ctx context.Context, to map[string]int64) error {
	if own := r.c.Identity.Registry; r.Keep != own {
		return otherKept(r.Keep, own)
	}
	marks, err := r.others, error(nil)
	if !r.Cut {
		marks, err = r.marksOfOther(ctx)
	}
	merge(to, marks)
	return err
}

func (r *resumption) marksOfOther(ctx context.Context) (map[string]int64, error) {
	other := r.other(ctx)
	if other == "" {
		return nil, errors.New("no worker of another registry answers, so it cannot be taken out: connect it, or " +
			"give its marks with --marks FILE --cut")
	}
	return r.ask.Marks(ctx, other)
}

// takeOut takes the other registry out, before the wait: then its marks are final.
func (r *resumption) takeOut(ctx context.Context) error {
	if r.Keep == "" || r.Cut {
		return nil
	}
	other := r.other(ctx)
	if err := r.ask.TakeOut(ctx, other, r.Keep); err != nil {
		return fmt.Errorf("registry %s is not taken out: %w", other, err)
	}
	return nil
}

// merge raises marks to those in from.
func merge(to, from map[string]int64) {
	for tag, mark := range from {
		to[tag] = max(to[tag], mark)
	}
}

// other returns the other registry.
func (r *resumption) other(ctx context.Context) string {
	if in := r.c.Identity.Incident; in != nil && in.Other != "" {
		return in.Other
	}
	ctx, cancel := context.WithTimeout(ctx, registriesTimeout)
	defer cancel()
	all, _ := r.ask.Notices(ctx, lineage.Notice{Process: "resume"}) // none is none
	for _, n := range all {
		if n.Registry != "" && n.Registry != r.Keep {
			return n.Registry
		}
	}
	return ""
}

// marksIn reads marks from a file, lines of a tag and a mark; none if path is "".
func marksIn(path string) (marks map[string]int64, err error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, usage(err)
	}
	marks = make(map[string]int64)
	for n, line := range bytes.Split(bytes.TrimSpace(data), []byte("\n")) {
		tag, text, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		mark, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err != nil || mark < 1 {
			return nil, usage(fmt.Errorf("%s:%d: %q: want a tag and its mark", path, n+1, line))
		}
		if err := checkTag(tag); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n+1, err)
		}
		marks[tag] = mark
	}
	return marks, nil
}

// resumeJSON is what a resume does, or would do with --dry-run.
type resumeJSON struct {
	Registry string       `json:"registry"`
	Incident string       `json:"incident,omitempty"`
	Cause    string       `json:"cause,omitempty"`
	Found    []foundJSON  `json:"found"` // by workers
	State    time.Time    `json:"state,omitzero"`
	Stopped  []string     `json:"stopped"` // workers that have stopped for it
	Waiting  []string     `json:"waiting"` // workers that have not said so
	Raises   []raisedJSON `json:"raises"`
	DryRun   bool         `json:"dry_run"`
	Outcome  string       `json:"outcome,omitempty"` // "in order", or what has to be done; absent with --dry-run

	assumption string // on which the raises rest
}

type foundJSON struct {
	Worker string    `json:"worker"`
	Why    string    `json:"why"`
	At     time.Time `json:"at"`
}

type raisedJSON struct {
	Tag  string           `json:"tag"`
	From subjects.Decimal `json:"from"`
	To   subjects.Decimal `json:"to"`
}

// show prints what was found, who has stopped, and what will be done.
func (r *resumption) show(raises []lineage.Raise) error {
	r.report = r.describe(raises)
	switch {
	case r.DryRun:
		return r.s.print(r.report, r.report.print)
	case r.s.line.JSON:
		return nil // done prints it
	}
	return r.report.print(r.s.stderr)
}

func (r *resumption) describe(raises []lineage.Raise) resumeJSON {
	j := resumeJSON{
		Registry: r.c.Identity.Registry, Found: []foundJSON{}, Stopped: []string{}, Waiting: []string{},
		Raises: []raisedJSON{}, DryRun: r.DryRun,
	}
	if in := r.c.Identity.Incident; in != nil {
		j.Incident, j.Cause, j.State = in.ID, string(in.Cause), in.Since()
		for _, p := range in.Provers {
			j.Found = append(j.Found, foundJSON{p.Name, p.Why, p.At})
		}
	}
	for _, w := range r.c.Workers {
		switch {
		case w.Joined:
			j.Stopped = append(j.Stopped, w.Name)
		case slices.Contains(j.Stopped, w.Name): // the key that it had until it proved the incident
		case !w.Ended && time.Since(w.Last) < time.Hour:
			j.Waiting = append(j.Waiting, w.Name)
		}
	}
	switch {
	case r.Keep != "":
		j.assumption = "No ID repeats if the marks of the other registry are all that its workers loaded."
	case r.TableIsWhole:
		j.assumption = "No ID repeats if the table lacks nothing that was ever loaded."
	default:
		j.assumption = "No ID repeats if no tag moved further than that since the state found: loads, raises and " +
			"earlier resumes counted."
	}
	for _, raise := range raises {
		j.Raises = append(j.Raises, raisedJSON{raise.Tag, subjects.Decimal(raise.From), subjects.Decimal(raise.To)})
	}
	return j
}

func (j resumeJSON) print(out io.Writer) error {
	fmt.Fprintf(out, "Registry %s is stopped: %s, incident %s\n", j.Registry, dash(j.Cause), dash(j.Incident))
	for _, f := range j.Found {
		fmt.Fprintf(out, "  %s  worker %s: %s\n", instant(f.At), f.Worker, f.Why)
	}
	fmt.Fprintf(out, "The state found is of %s.\n", instant(j.State))
	fmt.Fprintf(out, "Stopped: %s. Heard within the last hour, and not stopped yet: %s.\n",
		names(j.Stopped), names(j.Waiting))
	for i, raise := range j.Raises {
		if i == 20 {
			fmt.Fprintf(out, "  ... and %d more\n", len(j.Raises)-i)
			break
		}
		fmt.Fprintf(out, "  %s: %d -> %d\n", raise.Tag, raise.From, raise.To)
	}
	_, err := fmt.Fprintln(out, j.assumption)
	return err
}

func names(all []string) string {
	slices.Sort(all)
	if all = slices.Compact(all); len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}

// agree asks whether to continue, once.
func (r *resumption) agree(question string) error {
	if r.Yes || r.agreed {
		return nil
	}
	if !isTerminal(os.Stdin) {
		return errNoTerminal
	}
	if !r.s.asks(question) {
		return errors.New("nothing was changed")
	}
	r.agreed = true
	return nil
}

// asks asks a question, and reports whether the answer is yes.
func (s *session) asks(question string) bool {
	fmt.Fprintf(s.stderr, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n') // none is no
	a := strings.ToLower(strings.TrimSpace(answer))
	return a == "y" || a == "yes"
}

// isTerminal reports whether someone can type into f.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// confirm asks whether the bucket has each tag in use, where nobody has said so since the last stop.
func (r *resumption) confirm(ctx context.Context) (err error) {
	if r.c, err = r.o.Look(ctx, &r.c); err != nil {
		return err
	}
	if !r.c.Identity.Unconfirmed {
		return r.done("in order")
	}
	fmt.Fprintf(r.s.stderr, "Tags, limits or orders that were made after the state found are missing. The bucket has "+
		"%s: %s. Create those that are missing with `natsid tag create TAG --start N`, N above all their IDs.\n",
		numberOf(len(r.c.Marks), "tag"), names(firstOf(slices.Collect(maps.Keys(r.c.Marks)), 50)))
	if r.DryRun || !r.TagsComplete && (!isTerminal(os.Stdin) || !r.s.asks("Is each tag in use among them?")) {
		return r.done("no tag is created on first use until you run `natsid resume --tags-complete`")
	}
	if err := r.o.Confirm(ctx, &r.c); err != nil {
		return err
	}
	return r.done("in order")
}

func firstOf(all []string, most int) []string {
	slices.Sort(all)
	if len(all) > most {
		return append(all[:most:most], fmt.Sprintf("and %d more", len(all)-most))
	}
	return all
}

// done prints how the registry is.
func (r *resumption) done(state string) error {
	if r.report.Raises == nil { // nothing was stopped
		r.report = r.describe(nil)
	}
	r.report.Outcome = state
	return r.s.print(r.report, func(out io.Writer) error {
		_, err := fmt.Fprintf(out, "registry %s: %s\n", r.report.Registry, state)
		return err
	})
}
