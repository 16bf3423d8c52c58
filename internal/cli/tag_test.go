package cli_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/cli"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

func TestTagsAreCreatedAndListed(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t).url
	if got := answered(t, "tag", "create", "order", nats); got != (result{0, "order: next ID 1, step 1000\n", ""}) {
		t.Errorf("%+v", got)
	}
	got := answered(t, "tag", "create", "order.eu", "--step=50", "--start=9007199254740993", "--desc=of\n Europe", nats)
	if got.out != "order.eu: next ID 9007199254740993, step 50\n" {
		t.Errorf("%+v", got)
	}
	natsid(t, "tag", "create", "order", nats).want(t, 1, "exists")
	list := answered(t, "tag", "list", nats)
	if list.want(t, 0, ""); !matchLines(list.out, `TAG +MAX_ID +STEP +HOLE +UPDATED +LIMITS +DESCRIPTION`,
		`order +1 +1000 +11000000 +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  - *`,
		`order\.eu +9007199254740993 +50 .* of Europe`) {
		t.Errorf("listed\n%s", list.out)
	}
	if got := answered(t, "get", "segment", "order.eu", nats); got.out != "9007199254740993\n" {
		t.Errorf("%+v", got)
	}
}

func TestTagsAreChangedAndDeleted(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t, "--no-auto-create-tags").url
	answered(t, "tag", "create", "order", nats).want(t, 0, "")
	got := answered(t, "tag", "update", "order", "--step=50", "--desc=all orders", "--max-id=5001", nats)
	if got != (result{0, "order: next unreserved ID 5001, step 50\n", ""}) {
		t.Errorf("%+v", got)
	}
	if got := answered(t, "get", "segment", "order", nats); got.out != "5001\n" {
		t.Errorf("%+v", got)
	}
	natsid(t, "tag", "update", "order", "--max-id=5000", nats).want(t, 1, "400", "only rises")
	answered(t, "tag", "update", "order", "--raise-by=1000000000000", "--desc=", nats).want(t, 0, "")
	list := answered(t, "tag", "list", nats)
	if list.want(t, 0, ""); !matchLines(list.out, `TAG .*`, `order +1000000005\d\d\d +50 .*\d  - *`) {
		t.Errorf("listed\n%s", list.out)
	}
	got = answered(t, "tag", "delete", "order", nats)
	if !strings.HasPrefix(got.out, "order: deleted; created again, it continues from 1000000005") {
		t.Errorf("%+v", got)
	}
	natsid(t, "get", "segment", "order", nats).want(t, 1, "natsid: refused: 404: ", "deleted", "natsid tag create")
	natsid(t, "tag", "update", "order", "--step=5", nats).want(t, 1, "404", "deleted")
	natsid(t, "tag", "delete", "unknown", nats).want(t, 1, "404", "no such tag")
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
	if got != (result{0, "order: 50 a request, 100/s\n", ""}) {
		t.Errorf("%+v", got)
	}
	natsid(t, "get", "segment", "order", "-n", "51", nats).want(t, 1, "400", "limited to 50 IDs a request")
	says(answered(t, "throttle", "1000", nats), "Each tag is throttled to 1000 IDs/s.\n")
	says(answered(t, "tag", "list", nats), "50 a request, 100/s, throttled to 1000/s")
	says(answered(t, "throttle", "off", nats), "No tag is throttled.\n")
	says(answered(t, "tag", "update", "order", "--rate=0", "--max-batch=0", nats), "order: no limits\n")
	answered(t, "get", "segment", "order", "-n", "5000", nats).want(t, 0, "")
	for _, args := range []string{"", "order", "0", "-- -5", "5 6", "1000000000001"} {
		natsid(t, append(strings.Fields("throttle "+nats), strings.Fields(args)...)...).want(t, 2)
	}
	for _, tag := range []string{"so-1", "so-2"} {
		answered(t, "tag", "create", tag, nats).want(t, 0, "")
	}
	natsid(t, "tag", "update", "so-*", "--rate=5", nats).want(t, 2, "give --yes")
	natsid(t, "tag", "update", "so-*", "--step=5", nats).want(t, 2, "byte 3")
	got = answered(t, "tag", "update", "so-*", "--rate=5", "-y", nats)
	if got != (result{0, "so-1: 5/s\nso-2: 5/s\n", ""}) {
		t.Errorf("%+v", got)
	}
	natsid(t, "tag", "update", "order", "--rate=5", "--step=5", nats).want(t, 2, "two requests")
}

func TestEachTagIsRaisedByAResume(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t, "--no-auto-create-tags").url
	for _, tag := range []string{"a", "b", "deleted"} {
		answered(t, "tag", "create", tag, nats).want(t, 0, "")
	}
	answered(t, "tag", "delete", "deleted", nats).want(t, 0, "")
	answered(t, "get", "segment", "a", nats).want(t, 0, "")
	file := filepath.Join(t.TempDir(), "marks")
	marks := `[{"tag":"b","max_id":"700000"},{"tag":"new","max_id":"3000"}]`
	if err := os.WriteFile(file, []byte(marks), 0o600); err != nil {
		t.Fatal(err)
	}
	got := natsid(t, "resume", "--restored", "--since=1m", "--by=50000", "--at-least="+file, "--yes",
		"--tags-complete", nats)
	if got.code != 0 || !strings.HasSuffix(got.out, ": in order\n") {
		t.Errorf("%+v", got)
	}
	for tag, id := range map[string]string{"a": `5\d{4}`, "b": `70[01]\d{3}`, "new": `3\d{3}`} {
		if got := answered(t, "get", "segment", tag, nats); !matchLines(got.out, id) {
			t.Errorf("%s: %+v, want an ID like %s", tag, got, id)
		}
	}
	answered(t, "get", "segment", "deleted", nats).want(t, 1, "404", "deleted")
	got = answered(t, "tag", "create", "deleted", nats)
	if !regexp.MustCompile(`next ID 5\d{4}, `).MatchString(got.out) {
		t.Errorf("%+v", got)
	}
}

// What was loaded under an earlier incident is forgotten only some time after the last one was opened.
func TestAResumeWaitsAgainWhereTheIncidentIsAnotherOneAfterItsWait(t *testing.T) {
	t.Parallel()
	nats := "--nats=" + serve(t).url
	answered(t, "tag", "create", "order", nats).want(t, 0, "")
	resume := func(ctx context.Context, log *natstest.Buffer) int {
		var out natstest.Buffer
		return cli.Main(ctx, []string{"resume", "--restored", "--since=1m", "--by=50000", "--yes", nats}, &out, log)
	}
	var first, second natstest.Buffer
	interrupted, interrupt := context.WithCancel(t.Context())
	go func() { // another operator declares a restore while the first one waits, and goes away
		waits := func(log *natstest.Buffer) bool { return strings.Contains(log.String(), "Waiting ") }
		for !waits(&first) && t.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		go resume(interrupted, &second)
		for !waits(&second) && t.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		interrupt()
	}()
	if code := resume(t.Context(), &first); code != 0 || strings.Count(first.String(), "Waiting ") != 2 {
		t.Errorf("exit code %d, want 0 after two waits:\n%s", code, &first)
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
				natsid(t, "get", "segment", tag, nats).want(t, 1, "404", "natsid tag create")
			}
		})
	}
}

// matchLines reports whether each line of the text matches its pattern.
func matchLines(text string, patterns ...string) bool {
	return regexp.MustCompile(`^` + strings.Join(patterns, `\n`) + `\n$`).MatchString(text)
}
