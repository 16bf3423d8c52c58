//go:build unix

package holder_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/internal/holder"
	"github.com/natsid/natsid/internal/testkit/natstest"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
	"github.com/natsid/natsid/workerid"
)

// inChild is the variable that makes the test binary a program that draws snowflakes; its value is the URL of NATS.
const inChild = "HOLDER_TEST_NATS"

func TestMain(m *testing.M) {
	if url := os.Getenv(inChild); url != "" {
		child(url)
		return
	}
	goleak.VerifyTestMain(m, natstest.Left()...)
}

const number = 700

func only(snowflake.Layout, workerid.Span) (workerid.Span, error) {
	return workerid.Span{First: number, Last: number}, nil
}

const horizon = 3 * time.Second

// child prints snowflakes until its standard output is closed. It says when it has a number, and when it has none.
func child(url string) {
	nc, err := nats.Connect(url)
	if err != nil {
		panic(err)
	}
	h, err := holder.Open(context.Background(), nc, holder.Config{Name: "child", Fit: only, Horizon: horizon})
	if err != nil {
		panic(err)
	}
	for {
		id, err := h.Next(context.Background())
		if err != nil {
			id = 0
			time.Sleep(time.Millisecond)
		}
		if _, err := fmt.Println(int64(id)); err != nil {
			return
		}
	}
}

// A process that stood still beyond its window puts no tick at or above the end of the window into an ID, although
// another process has the number by then.
func TestAProcessThatStoodStillBeyondItsWindowIssuesNothing(t *testing.T) {
	c := e2e.Start(t, e2e.Config{})
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), inChild+"="+c.URL), t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	ids := make(chan subjects.ID, 1<<20)
	go func() {
		defer close(ids)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var id subjects.ID
			if _, err := fmt.Sscan(lines.Text(), &id); err == nil {
				ids <- id
			}
		}
	}()
	seen, highest := make(map[subjects.ID]bool), int64(0)
	note := func(id subjects.ID) {
		p, err := snowflake.Leaf.Decode(id)
		if seen[id] || err != nil || p.Worker != number {
			t.Fatalf("%d: %+v, %v, seen %t", id, p, err, seen[id])
		}
		seen[id], highest = true, max(highest, p.Time.UnixMilli())
	}
	for len(seen) < 1000 {
		note(<-ids)
	}
	signal := func(s os.Signal) {
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	mine, err := holder.Open(t.Context(), c.Conn, holder.Config{Name: "parent", Fit: only, Horizon: time.Minute})
	for errors.Is(err, workerid.ErrExhausted) || err != nil && t.Context().Err() == nil {
		mine, err = holder.Open(t.Context(), c.Conn, holder.Config{Name: "parent", Fit: only, Horizon: time.Minute})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	first, err := mine.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen[first] = true
	p, _ := mine.Layout().Decode(first)
	begin := p.Time.UnixMilli()
	signal(syscall.SIGCONT)
	for nothing := 0; nothing < 1000; { // it says often that it has no number
		id := <-ids
		if id == 0 {
			nothing++
			continue
		}
		note(id)
	}
	if highest >= begin {
		t.Errorf("the stopped process issued at %d, and the next owner from %d on", highest, begin)
	}
	t.Logf("last tick of the stopped process %d ms before the first of the next owner", begin-highest)
}
