package shop_test

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.com/shop"

	"github.com/natsid/natsid/e2e"
	"github.com/natsid/natsid/subjects"
)

// open opens a shop for one test.
func open(t *testing.T, natsid *e2e.Cluster) *shop.Shop {
	s, err := shop.New(natsid.Conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Two workers serve the shop, and one of them stops meanwhile.
func TestNoOrderFailsAndNoNumberRepeats(t *testing.T) {
	t.Parallel()
	const customers, each, lines = 50, 40, 3
	natsid := e2e.Start(t, e2e.Config{Workers: 2})
	s := open(t, natsid)

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // on a busy machine
	defer cancel()
	sold := make(chan shop.Order, customers*each)
	var wg sync.WaitGroup
	for range customers {
		wg.Go(func() {
			for range each {
				o, err := s.Order(ctx, lines)
				if err != nil {
					t.Error(err)
				}
				sold <- o
			}
		})
	}
	sold <- <-sold // one is there
	natsid.StopWorker(0)
	wg.Wait()
	close(sold)

	numbers, want := map[subjects.ID]bool{}, 0
	for o := range sold {
		want += 1 + lines
		for _, id := range append(o.Lines, o.ID) {
			numbers[id] = true
		}
	}
	if len(numbers) != want || numbers[0] {
		t.Errorf("%d of %d numbers are different, 0 among them: %v", len(numbers), want, numbers[0])
	}
}

// Whoever draws IDs gets natsid's own module, and those that nats.go brings.
func TestTheClientBringsNoModuleButNatsid(t *testing.T) {
	t.Parallel()
	got := modulesOf(t, "example.com/shop")
	want := append(modulesOf(t, "github.com/nats-io/nats.go"), "github.com/natsid/natsid")
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("a shop is built from %q, want %q", got, want)
	}
	t.Logf("a shop is built from %d modules of others: %q", len(got), got)
}

// modulesOf returns the modules that a package is built from, but the shop's own.
func modulesOf(t *testing.T, pkg string) []string {
	t.Helper()
	const form = "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", form, pkg).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	paths := strings.Fields(string(out))
	slices.Sort(paths)
	return slices.Compact(paths)
}
