package stage_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/internal/stage"
)

func TestARateIsKept(t *testing.T) {
	for rate, want := range map[int]time.Duration{1: 99 * time.Second, 33: 3 * time.Second, 5000: 0} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			w.calm = true
			w.publish(make([]kind, 100)...)
			start := time.Now()
			if err := w.stage(true, func(c *stage.Config) { c.Rate = rate }).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			took := time.Since(start).Round(time.Second)
			if took < want || took > want+2*time.Second {
				t.Errorf("100 messages at %d a second took %v, want %v", rate, took, want)
			}
			w.judge()
		})
	}
}
