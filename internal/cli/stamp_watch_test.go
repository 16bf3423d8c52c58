package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/stage"
)

func TestThePaceTellsWhenNothingIsBehind(t *testing.T) {
	at := time.Now()
	p := pace{at: at, last: stage.Progress{Role: stage.Copying, Copied: 100, Position: 100, Behind: 5000}}
	for _, tc := range []struct {
		copied, behind uint64
		left           time.Duration
		want           string
	}{
		{1100, 4000, 8 * time.Second, "copying: message 1100, 500/s, 4000 behind, 8s left"},
		{2100, 4000, 0, "copying: message 2100, 500/s, 4000 behind"}, // as many came
		{2100, 6000, 0, "copying: message 2100, 0/s, 6000 behind"},
		{8100, 0, 0, "copying: message 8100, 3000/s, 0 behind"},
	} {
		at = at.Add(2 * time.Second)
		p.next(at, stage.Progress{
			Role: stage.Copying, Copied: tc.copied, Position: tc.copied, Behind: tc.behind}, 1)
		if got := p.String(); got != tc.want || p.left() != tc.left {
			t.Errorf("%q, %v left, want %q, %v", got, p.left(), tc.want, tc.left)
		}
	}
	p.last.Role, p.last.Why = stage.Retrying, strings.Repeat("no answer ", 9)
	if got := p.String(); len(got) != 79 || !strings.HasSuffix(got, "...") {
		t.Errorf("%q does not fit a line", got)
	}
}

func TestLogLinesStandAboveTheStatusLine(t *testing.T) {
	var out bytes.Buffer
	l := newStatusLine(&out)
	if l.terminal {
		t.Error("a buffer is a terminal")
	}
	write := func(text string) {
		if n, err := l.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	write("one\n")
	l.show("10%")
	l.show("10%")
	write("two\n")
	l.show("20%")
	l.show("")
	write("three\n")
	const want = "one\n" + clearLine + "10%" + clearLine + "two\n10%" + clearLine + "20%" + clearLine + "three\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
