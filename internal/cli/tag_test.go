package cli_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/natsid/natsid/internal/testkit/wait"
	"github.com/natsid/natsid/subjects"
)

func TestTagsAreCreatedAndListed(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t).url
	got := answered(t, "tag", "create", "order", nats)
	if got != (result{0, "order: next ID 1, step 1000, limits off\n", ""}) {
		t.Errorf("%+v", got)
	}
	got = answered(t, "tag", "create", "order.eu", "--step=50", "--start=9007199254740993", "--desc=of\n Europe", nats)
	if got.out != "order.eu: next ID 9007199254740993, step 50, limits off\n" {
		t.Errorf("%+v", got)
	}
	answered(t, "tag", "create", "order", nats).want(t, 3, "exists")
	list := answered(t, "tag", "list", nats)
	if list.want(t, 0, ""); !matchLines(list.out, `TAG +NEXT ID +STEP +UPDATED +LIMITS +DESCRIPTION`,
		`order +1 +1000 +\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ +- +-`,
		`order\.eu +9007199254740993 +50 .* of +Europe`) {
		t.Errorf("listed\n%s", list.out)
	}
	wantFrom(t, 9007199254740993, answered(t, "get", "segment", "order.eu", nats))
	lists := func(want string, tags ...string) {
		t.Helper()
		got := answered(t, append([]string{"tag", "list", nats}, tags...)...)
		if names := regexp.MustCompile(`(?m)^order\S*`).FindAllString(got.out, -1); strings.Join(names, " ") != want {
			t.Errorf("%v: %+v, want %s", tags, got, want)
		}
	}
	lists("order", "order")
	lists("order.eu", "none", "*.eu")
	lists("order order.eu", "order", "ord*")
	natsid(t, "tag", "list", "ordre", nats).want(t, 1, "no tag matches ordre: check the name or pattern")
}

func TestWhatATagCannotHaveIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t).url
	for _, row := range []struct {
		command string
		code    int
		words   string
	}{
		{"tag create full --max=10 --start=20", 3, "beyond the numbers of the tag, which end at 10"},
		{"tag create b --max=10", 0, ""},
		{"tag update b --next-id=12 --force", 3, "which end at 10"},
		{"tag update b --raise-by=11", 3, "which end at 10"},
		{"tag create d --daily", 0, ""},
		{"tag update d --next-id=20261128000000500 --force", 3, "beyond the daily numbers"},
		{"tag update d --next-id=500", 3, "has no date"},
		{"tag create z --daily --zone=+12:60", 3, "want a name such as Asia/Shanghai"},
		{"tag create s --strict --max=10", 0, ""},
		{"get segment s -n 20", 3, "410: only 10 numbers are left"},
		{"tag update s --next-id=10", 0, ""},
		{"get segment s -n 2", 3, "410: only 1 numbers are left"},
		{"tag update s --next-id=11", 0, ""},
		{"get segment s", 3, "410: no number is left"},
		{"tag delete s -y", 0, ""},
		{"tag create s --strict --max=10", 3, "which end at 10"},
		{"tag create s --strict --max=20", 0, "next ID 11"},
		{"get segment s", 0, "1"},
	} {
		got := answered(t, append(strings.Fields(row.command), nats)...)
		if got.code != row.code || !strings.Contains(got.out+got.err, row.words) {
			t.Errorf("%s: %+v, want %d, %q", row.command, got, row.code, row.words)
		}
		if strings.Contains(got.err, "in time") {
			t.Errorf("%s was repeated until its time was up: %s", row.command, got.err)
		}
	}
}

func TestTagsOfOneCommandAreMadeInOrder(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t).url
	got := answered(t, "tag", "create", "a", "b", "--step=5", nats)
	if got != (result{0, "a: next ID 1, step 5, limits off\nb: next ID 1, step 5, limits off\n", ""}) {
		t.Errorf("%+v", got)
	}
	got = answered(t, "tag", "create", "c", "b", "d", nats)
	if got.code != 3 || !matchLines(got.out+got.err, "c: next ID 1, step 1000, limits off",
		".*the tag exists; the 1 before tag b are made, those after it are not: repeat with the rest; .*") {
		t.Errorf("%+v", got)
	}
}

func TestTagsAreChangedAndDeleted(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t, "--no-auto-create-tags").url
	answered(t, "tag", "create", "order", nats).want(t, 0, "")
	got := answered(t, "tag", "update", "order", "--step=50", "--desc=all orders", "--next-id=5001", nats)
	if got != (result{0, "order: next ID 5001, step 50, limits off\n", ""}) {
		t.Errorf("%+v", got)
	}
	wantFrom(t, 5001, answered(t, "get", "segment", "order", nats))
	answered(t, "tag", "update", "order", "--next-id=5000", nats).want(t, 3, "400", "only rises")
	answered(t, "tag", "update", "order", "--raise-by=1000000000000", "--desc=", nats).want(t, 0, "")
	list := answered(t, "tag", "list", nats)
	if list.want(t, 0, ""); !matchLines(list.out, `TAG .*`, `order +1000000005\d\d\d +50 .*Z +- +-`) {
		t.Errorf("listed\n%s", list.out)
	}
	if got := answered(t, "tag", "delete", "order", "--dry-run", nats); got.code != 0 || got.out != list.out {
		t.Errorf("%+v, want the tag that would be deleted", got)
	}
	natsid(t, "tag", "delete", "order", nats).want(t, 2, "1000000005", "give --yes")
	if got := answered(t, "tag", "list", nats); got.out != list.out {
		t.Errorf("%+v, though nobody agreed", got)
	}
	got = answered(t, "tag", "delete", "order", "-y", nats)
	if !strings.HasPrefix(got.out, "order: deleted, next ID 1000000005") {
		t.Errorf("%+v", got)
	}
	answered(t, "get", "segment", "order", nats).want(t, 3, "natsid: refused: 404: ", "deleted", "natsid tag create")
	answered(t, "tag", "update", "order", "--step=5", nats).want(t, 3, "404", "deleted")
	answered(t, "tag", "delete", "unknown", "-y", nats).want(t, 3, "404", "no such tag")
}

func TestTagsAreLimitedAndThrottled(t *testing.T) {
	t.Parallel()
	s := serve(t, "--no-auto-create-tags")
	nats := "--nats=" + s.url
	answered(t, "tag", "create", "order", nats).want(t, 0, "")
	says := func(got result, words string) {
		t.Helper()
		if got.code != 0 || !strings.Contains(got.out, words) {
			t.Errorf("%+v, want %q", got, words)
		}
	}
	got := answered(t, "tag", "update", "order", "--rate=100", "--max-batch=50", nats)
	if got != (result{0, "order: next ID 1, step 1000, limits 50 a request, 100/s\n", ""}) {
		t.Errorf("%+v", got)
	}
	got = answered(t, "get", "segment", "order", "-n", "51", nats) // by two requests
	if runs, err := subjects.ParseRuns([]byte(strings.TrimSpace(got.out))); err != nil || runs.Len() != 51 {
		t.Errorf("%+v, %v, want 51 IDs", got, err)
	}
	natsid(t, "throttle", "1000", nats).want(t, 2, "IDs/s of each tag  1000", "give --yes")
	says(answered(t, "throttle", "1000", "--dry-run", nats), "IDs/s of each tag  1000\n")
	says(answered(t, "throttle", "1000", "-y", nats), "IDs/s of each tag  1000\n")
	says(answered(t, "tag", "list", nats), "50 a request, 100/s, throttled to 1000/s")
	says(natsid(t, "status", nats), "Each tag is throttled to 1000 IDs/s, until `natsid throttle off`.\n")
	says(answered(t, "throttle", "off", "-y", nats), "IDs/s of each tag  off\n")
	says(answered(t, "tag", "update", "order", "--rate=off", "--max-batch=off", nats), "step 1000, limits off\n")
	answered(t, "get", "segment", "order", "-n", "5000", nats).want(t, 0, "")
	for _, args := range []string{"", "order", "0", "-- -5", "5 6", "1000000000001"} {
		natsid(t, append(strings.Fields("throttle -y "+nats), strings.Fields(args)...)...).want(t, 2)
	}
	for _, tag := range []string{"so-1", "so-2"} {
		answered(t, "tag", "create", tag, nats).want(t, 0, "")
	}
	natsid(t, "tag", "update", "so-*", "--rate=5", nats).want(t, 2, "give --yes")
	got = answered(t, "tag", "update", "so-*", "--rate=5", "-y", nats)
	if got != (result{0, "so-1: next ID 1, step 1000, limits 5/s\nso-2: next ID 1, step 1000, limits 5/s\n", ""}) {
		t.Errorf("%+v", got)
	}
	answered(t, "tag", "update", "order", "--rate=5", "--step=5", nats).want(t, 0, "")
	line(t, `order .* 5 .* 5/s +-`, "tag", "list", nats)
	got = answered(t, "tag", "update", "so-*", "--step=5", "-y", nats)
	says(got, "so-2: next ID 1, step 5, limits 5/s\n")
}

func TestEachTagGoesOnAboveTheBumpOrIsDecided(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t).url
	for _, tag := range []string{"a", "deleted"} {
		answered(t, "get", "segment", tag, nats).want(t, 0)
	}
	answered(t, "tag", "create", "ticket", "--max=9999", nats).want(t, 0)
	answered(t, "get", "segment", "ticket", nats).want(t, 0)
	answered(t, "tag", "create", "big", "--start=2000000000", nats).want(t, 0)
	answered(t, "tag", "delete", "deleted", "-y", nats).want(t, 0)
	got := natsid(t, "resume", "--restored", "--yes", nats)
	if got.code != 0 || !strings.Contains(got.out, "  natsid tag update ticket --next-id N\nregistry ") ||
		!strings.HasSuffix(got.out, ": resumed\n") {
		t.Errorf("%+v", got)
	}
	for _, says := range []string{"covers 27h46m40s of one tag", "A new tag begins at 1000000001, ",
		"big: 2000000000 -> 3000000000, beyond 2^31\n", "No ID repeats if since the state found no tag was loaded"} {
		if !strings.Contains(got.err, says) {
			t.Errorf("no %q in\n%s", says, got.err)
		}
	}
	if date := regexp.MustCompile(`\d{4}-\d\d-\d\d|\d\d:\d\d`).FindString(got.err); date != "" {
		t.Errorf("the plan has a time, %s: it may depend on no clock", date)
	}
	wait.Until(t, "the worker is in the new era", func() bool {
		return matchLines(natsid(t, "get", "segment", "a", nats).out, `100000\d{4}`)
	})
	wantFrom(t, 1000000001, answered(t, "get", "segment", "new", nats))
	if got := answered(t, "tag", "create", "one", "--start=1", nats); !strings.Contains(got.out, "next ID 1, ") {
		t.Errorf("%+v", got)
	}
	answered(t, "tag", "create", "new-ticket", "--max=9999", nats).want(t, 3, "400", "start 1")
	answered(t, "tag", "create", "new-ticket", "--max=9999", "--start=1", nats).want(t, 0)
	if got := answered(t, "tag", "create", "deleted", nats); !strings.Contains(got.out, "next ID 100000") {
		t.Errorf("%+v", got)
	}
	natsid(t, "get", "segment", "ticket", nats).want(t, 3, "503",
		"where the tag goes on is undecided; `natsid status` says what to type")
	shown := regexp.MustCompile(`ticket.*(undecided|--next-id)`)
	for _, command := range []string{"status", "tag list", "resume"} {
		got := natsid(t, append(strings.Fields(command), nats)...)
		if got.code != 0 && command != "status" || !shown.MatchString(got.out) {
			t.Errorf("%s: %+v, want the tag that is undecided", command, got)
		}
	}
	answered(t, "tag", "update", "ticket", "--next-id=2", nats).want(t, 3, "only rises")
	answered(t, "tag", "update", "ticket", "--next-id=5000", nats).want(t, 0)
	wantFrom(t, 5000, answered(t, "get", "segment", "ticket", nats))
	if got := natsid(t, "resume", nats); got.code != 0 || !matchLines(got.out, `registry \w+: in order`) {
		t.Errorf("%+v", got)
	}
}

func TestOnlyTagsOfThePatternAreCreatedOnFirstUse(t *testing.T) {
	for name, args := range map[string][]string{"flag": {"--auto-create-tags=tmp.*"}, "environment": nil} {
		t.Run(name, func(t *testing.T) {
			if args == nil {
				t.Setenv("NATSID_AUTO_CREATE_TAGS", "tmp.*")
			}
			nats := "--nats=" + serve(t, args...).url
			answered(t, "get", "segment", "tmp.a.b", nats).want(t, 0, "")
			for _, tag := range []string{"order", "tmp", "tmp.a/b", "xtmp.a"} {
				answered(t, "get", "segment", tag, nats).want(t, 3, "404", "natsid tag create")
			}
		})
	}
}

// matchLines reports whether each line of the text matches its pattern.
func matchLines(text string, patterns ...string) bool {
	return regexp.MustCompile(`^` + strings.Join(patterns, `\n`) + `\n$`).MatchString(text)
}
