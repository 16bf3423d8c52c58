package app

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/issuer"
	"github.com/natsid/natsid/segment"
)

func TestTheAlarmOfATagComesAtNineTenthsAndWhenNoNumberIsLeft(t *testing.T) {
	var raised []string
	s := loads{
		runsOut:   func(tag, message string) { raised = append(raised, tag+": "+message) },
		undecided: func(string, bool) {},
	}
	load := func(start, end int64) {
		s.watchEnd("t", segment.Loaded{
			Range: segment.Range{Start: start, End: end}, Rules: segment.Rules{Max: 100},
		}, nil)
	}
	load(1, 51)
	load(51, 90)
	if len(raised) > 0 {
		t.Fatalf("below nine tenths: %q", raised)
	}
	load(90, 95)
	load(95, 95)
	s.watchEnd("t", segment.Loaded{}, fmt.Errorf("load: %w", segment.ErrExhausted))
	if len(raised) != 2 || !strings.Contains(raised[0], "94 %") ||
		!strings.Contains(raised[1], "no number is left to reserve") {
		t.Errorf("%q, want one at nine tenths, one at the end", raised)
	}
	raised = nil // the maximum was lowered
	load(95, 97)
	if len(raised) != 1 || !strings.Contains(raised[0], "96 %") {
		t.Errorf("%q, want one for a further percent", raised)
	}
}

func TestAClockWithoutSnowflakesBeginsNoDay(t *testing.T) {
	p := &program{cfg: Config{Now: time.Now}}
	if _, isSure := p.clock(); isSure {
		t.Error("a clock is sure before the start")
	}
	p.issuer = issuer.New(time.Second, 1, func() int64 { return time.Now().UnixMilli() })
	if _, isSure := p.clock(); isSure {
		t.Error("a clock is sure that no worker number vouches for")
	}
}
