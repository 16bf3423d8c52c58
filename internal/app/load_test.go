package app

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/issuer"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
)

func TestTheAlarmOfATagComesAtNineTenthsAndWhenNoNumberIsLeft(t *testing.T) {
	s := loads{alarms: newAlarms(slog.New(slog.DiscardHandler), func(wire.Alarm) {}, func(wire.Alarm) {})}
	for i, tc := range []struct {
		start, end int64 // of the range; 0 is a load that finds no number
		want       string
	}{
		{1, 51, ""}, {51, 90, ""}, {90, 95, "94 % of"}, {95, 95, ""}, {0, 0, "no number is left to reserve"},
		{95, 97, "96 % of"}, // the maximum was raised
	} {
		tag, l, err := fmt.Sprint("tag", i), segment.Loaded{Rules: segment.Rules{Max: 100}}, error(nil)
		l.Range = segment.Range{Start: tc.start, End: tc.end}
		if tc.start == 0 {
			err = fmt.Errorf("load: %w", segment.ErrExhausted)
		}
		s.raiseAlarms(tag, l, err)
		got := ""
		if len(s.alarms.queue) > 0 {
			got = (<-s.alarms.queue).Message
		}
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
			t.Errorf("%d to %d of 100: %q, want %q", tc.start, tc.end, got, tc.want)
		}
	}
}

func TestAClockWithoutSnowflakesBeginsNoDay(t *testing.T) {
	p := &program{cfg: Config{Now: time.Now}}
	p.issuer = issuer.New(time.Second, 1, func() int64 { return time.Now().UnixMilli() })
	if _, isSure := p.clock(); isSure {
		t.Error("a clock is sure that no worker number vouches for")
	}
}
