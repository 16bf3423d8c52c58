package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/testkit/exampletb"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/natstest"
)

// t stands for the *testing.T that the examples' tests are given.
var t = new(exampletb.T)

func TestMain(m *testing.M) { goleak.VerifyTestMain(t.Around(m), natstest.Left()...) }

func TestANegativeNumberOfWorkersFailsTheTest(t *testing.T) {
	defer func() {
		if said := fmt.Sprint(recover()); !strings.Contains(said, "Workers is -1") {
			t.Error(said)
		}
	}()
	e2e.Start(new(exampletb.T), e2e.Config{Workers: -1})
}

func TestTagsAreInTheTableOfMySQL(t *testing.T) {
	t.Parallel()
	db := mysqltest.Start(t)
	ids := e2e.Start(t, e2e.Config{MySQL: db.DSN()})
	if id, err := ids.Segment("invoice").Next(t.Context()); err != nil || id < 1 || id > 100 {
		t.Errorf("the first ID of a tag is %d, %v", id, err)
	}
	var tags int
	row := db.DB().QueryRowContext(t.Context(), "SELECT COUNT(*) FROM leaf_alloc WHERE biz_tag = 'invoice'")
	if err := row.Scan(&tags); err != nil || tags != 1 {
		t.Errorf("the table has %d rows of the tag, %v", tags, err)
	}
}

// A worker whose clock goes back an hour issues no snowflakes.
func TestAClockIsSet(t *testing.T) {
	t.Parallel()
	var back atomic.Int64
	ids := e2e.Start(t, e2e.Config{Clock: func(int) time.Time { return time.Now().Add(-time.Duration(back.Load())) }})
	back.Store(int64(time.Hour))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for range 1000 {
		if _, err := ids.Snowflake().Next(ctx); err != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("snowflakes are issued an hour in the past")
}
