package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/natsid/natsid/internal/fleetview"
	"github.com/natsid/natsid/subjects"
)

// aFleet is a view of workers of which one in ten does not answer.
func aFleet(workers int) topView {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	s := fleetview.Snapshot{At: at}
	for i := range workers {
		w := fleetview.Worker{Answered: i%10 != 3, Seen: at.Add(-time.Minute)}
		w.Statistics.Instance, w.Statistics.Number = fmt.Sprintf("worker-in-a-far-region-%03d", i), &i
		w.Version = "1.2.3"
		w.Until = at.Add(299 * time.Second)
		w.Modes = map[string]subjects.ModeView{"segment": {State: subjects.Ready}}
		w.Rates = map[string]fleetview.Rate{"segment": {Requests: 1000, IDs: 123456}}
		s.Workers = append(s.Workers, w)
	}
	return topView{Overview: s.Overview(), at: at, answered: s.Answered(), namespace: "id"}
}

func text(lines []styled) string {
	var all []string
	for _, l := range lines {
		all = append(all, l.text)
	}
	return strings.Join(all, "\n")
}

func TestAFrameFitsTheTerminalAndHidesNoWorkerThatIsSilent(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {200, 60}, {40, 12}, {20, 5}, {80, 3}, {1, 1}, {3, 2}} {
		for _, workers := range []int{0, 1, 4, 200} {
			v := aFleet(workers)
			v.alarms, v.today = []subjects.AlarmEvent{{Message: strings.Repeat("long ", 99)}, {}, {}}, 3
			lines := v.frame(size[0], size[1])
			if len(lines) > size[1] {
				t.Errorf("%v with %d workers: %d lines", size, workers, len(lines))
			}
			for _, l := range lines {
				if n := utf8.RuneCountInString(l.text); n > size[0] {
					t.Errorf("%v with %d workers: %d columns: %q", size, workers, n, l.text)
				}
			}
		}
	}
	got := text(aFleet(4).frame(80, 24))
	for _, want := range []string{
		"3 of 4 answered, 3 serving", "370,368 IDs/s", "3,000 requests/s", "\nWORKER", "no answer",
		"It last answered 1 min 0 s ago", "q ends", "4 min 59 s",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	if silent, good := strings.Index(got, "region-003"), strings.Index(got, "region-000"); silent > good {
		t.Errorf("the worker that is silent stands below those that serve:\n%s", got)
	}
	if got := text(aFleet(200).frame(80, 24)); !strings.Contains(got, "more lines; those that serve, 180, come last") {
		t.Errorf("nothing says that there are more:\n%s", got)
	}
	if got := text(aFleet(200).frame(0, 0)); strings.Count(got, "region-") != 200 || strings.Contains(got, "...") {
		t.Errorf("what is printed is not whole:\n%s", got)
	}
}

func TestAFrameSaysWhatIsNotKnown(t *testing.T) {
	v := aFleet(2)
	v.Rows[0].Known, v.away, v.unheard = false, true, errors.New("no bucket")
	v.Registry, v.Versions = errors.New("no leader"), 2
	got := text(v.frame(120, 30))
	for _, want := range []string{
		"NATS does not answer", "worker numbers cannot be read: no leader",
		"alarms that are kept cannot be read: no bucket", "of 2 versions", "  ...  ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
}

func TestATerminalObeysNoNameOfAWorker(t *testing.T) {
	v := aFleet(2)
	v.Rows[0].Statistics.Instance = "a\x1b[2Jb\r\nc\u009b2Jd\u202ee"
	v.Rows[1].State, v.Rows[1].Why = "x\x1b]0;t\a", []string{"y\x1bcz"}
	v.alarms = []subjects.AlarmEvent{{Instance: "i\x1b", Kind: "k\x1b", Message: "m\x1b"}}
	v.Registry = errors.New("r\x1b")
	for _, columns := range []int{0, 80} {
		got := text(v.frame(columns, columns))
		if strings.ContainsAny(got, "\x1b\a\r\u009b\u202e") || !strings.Contains(got, "a?[2Jb  c?2Jd?e") {
			t.Errorf("%q", got)
		}
	}
}
