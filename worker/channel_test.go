package worker

import (
	"testing"
	"time"
)

func TestAChannelIsLostOnlyIfMessagesMustHaveArrived(t *testing.T) {
	p, begin := usualPace, time.Unix(1_800_000_000, 0)
	heard, stands := int64(7), true
	look := func(c *channel, after time.Duration) bool {
		now := begin.Add(after)
		c.hear(now, p)
		return c.lost(now, p)
	}
	for law, tc := range map[string]struct {
		silent  time.Duration
		answers []float64 // what others heard, in the time of a silence
		nobody  int
		down    bool
		lost    bool
	}{
		"others hear much":               {silent: p.silence, answers: []float64{10, 10}, lost: true},
		"but this one is silent shortly": {silent: p.silence - 1, answers: []float64{1000}},
		"others hear little":             {silent: p.silence, answers: []float64{10, 9.9}},
		"for long":                       {silent: 2 * p.silence, answers: []float64{5, 5}, lost: true},
		"nobody answers":                 {silent: p.silence},
		"nobody is there, five times":    {silent: p.silence, nobody: enoughNobody, lost: true},
		"nobody was there, four times":   {silent: p.silence, nobody: enoughNobody - 1},
		"it does not stand":              {silent: p.silence, answers: []float64{1000}, down: true},
	} {
		t.Run(law, func(t *testing.T) {
			stands = true
			c := &channel{heard: func() int64 { return heard }, stands: func() bool { return stands }}
			look(c, 0)
			for _, a := range tc.answers {
				c.others += a
				c.answers++
			}
			c.nobody, stands = tc.nobody, !tc.down
			if got := look(c, tc.silent); got != tc.lost {
				t.Errorf("lost %v, want %v", got, tc.lost)
			}
			if heard++; look(c, tc.silent+1) {
				t.Error("a message has arrived")
			}
		})
	}
}

func TestAChannelCountsWhatArrivedLately(t *testing.T) {
	p, now := usualPace, time.Unix(1_800_000_000, 0)
	heard := int64(1000)
	c := &channel{heard: func() int64 { return heard }, stands: func() bool { return true }}
	for range 3 * len(c.window) { // 2 in each part of a silence
		now = now.Add(p.silence / time.Duration(len(c.window)))
		heard += 2
		c.hear(now, p)
	}
	if got, want := c.lately(now, p), int64(2*(len(c.window)-1)); got != want {
		t.Errorf("%d, want %d", got, want)
	}
}
