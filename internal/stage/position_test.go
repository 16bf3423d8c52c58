package stage_test

import (
	"testing"
	"time"

	"github.com/natsid/natsid/internal/stage"
)

func TestAPositionIsReadAsItIsWritten(t *testing.T) {
	p := stage.Position{Stream: "ORDERS", Created: time.Unix(1_700_000_000, 123_456_789).UTC(), Seq: 17,
		Time: time.Unix(1_700_000_001, 0).UTC()}
	const want = "ORDERS 2023-11-14T22:13:20.123456789Z 17 2023-11-14T22:13:21Z"
	if got, err := stage.ParsePosition(want); p.String() != want || err != nil || got != p {
		t.Errorf("%v, read %v, %v", p, got, err)
	}
}

func FuzzParsePosition(f *testing.F) {
	for _, text := range []string{
		"ORDERS 2023-11-14T22:13:20.123456789Z 17 2023-11-14T22:13:21Z", "", "  ", "ORDERS",
		"ORDERS 2023-11-14T22:13:20Z 0 2023-11-14T22:13:21Z", "ORDERS 2023-11-14T22:13:20+01:00 17 now",
		"ORDERS 2023-11-14T22:13:20Z -1 2023-11-14T22:13:21Z", "ORDERS now 17 2023-11-14T22:13:21Z", "a b c d",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := stage.ParsePosition(text)
		if err != nil {
			return
		}
		again, err := stage.ParsePosition(p.String())
		same := again.Stream == p.Stream && again.Created.Equal(p.Created) && again.Seq == p.Seq &&
			again.Time.Equal(p.Time)
		if err != nil || !same || p.Seq == 0 {
			t.Errorf("%q is %v, which is read as %v: %v", text, p, again, err)
		}
	})
}
