package loglimit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/natsid/natsid/internal/loglimit"
)

func TestAKindIsForgottenAfterAQuietMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passed := 0
		l := loglimit.NewLimiter[int](1, func(int, int) { passed++ })
		for kind := range 3 { // the third is held back with the second
			if held := l.Hold(kind+1, 0); held != (kind == 2) {
				t.Errorf("kind %d: held back: %v", kind, held)
			}
		}
		time.Sleep(3 * loglimit.Every)
		synctest.Wait()
		if passed != 1 || l.Hold(9, 0) || !l.Hold(9, 0) {
			t.Errorf("%d passed, want one, and room for another kind", passed)
		}
		time.Sleep(2 * loglimit.Every)
	})
}
