// Command holder draws snowflakes as package number does, until SIGTERM, and appends the first and the last of each run
// to a file; below `natsid number` it makes them with a generator that knows no window. It is a process of the trials
// holder-*.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/holder"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

func main() {
	url := flag.String("nats", "", "URLs of NATS")
	out := flag.String("out", "", "file of the IDs")
	var cfg holder.Config
	flag.StringVar(&cfg.Dir, "data", "", "directory of the state")
	flag.StringVar(&cfg.Name, "name", "", "name of the holder")
	flag.DurationVar(&cfg.Horizon, "horizon", 0, "length of a window")
	layout := flag.String("layout", "", "layout of the IDs, below natsid number")
	namespace := flag.String("namespace", "", "namespace of the workers")
	flag.Parse()
	cfg.Namespace, cfg.Log = subjects.Namespace(*namespace), slog.New(slog.NewTextHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	if number, below := os.LookupEnv("NATSID_WORKER_NUMBER"); below {
		err = runBelow(ctx, number, *layout, *out)
	} else {
		err = run(ctx, *url, *out, cfg)
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "holder:", err)
		os.Exit(1)
	}
}

// batch is how many IDs are drawn each 20 ms.
const batch = 50

func run(ctx context.Context, url, out string, cfg holder.Config) error {
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	defer nc.Close()
	h, err := holder.Open(ctx, nc, cfg)
	for err != nil && ctx.Err() == nil {
		cfg.Log.Warn("cannot open yet", "error", err)
		time.Sleep(200 * time.Millisecond)
		h, err = holder.Open(ctx, nc, cfg)
	}
	if err != nil {
		return err
	}
	return errors.Join(draw(ctx, out, func() (text []byte) {
		runs, _ := h.NextN(ctx, batch) // it goes on by itself
		for _, r := range runs {
			text = appendRun(text, r.First, r.Last)
		}
		return text
	}), h.Close())
}

// runBelow makes IDs with a generator whose window never ends.
func runBelow(ctx context.Context, number, layout, out string) error {
	l, err := snowflake.ParseLayout(layout)
	if err != nil {
		return err
	}
	w, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	now := func() int64 { return time.Now().UnixMilli() }
	g, err := snowflake.NewGenerator(l, w, now(), math.MaxInt64, snowflake.DefaultMaxAhead)
	if err != nil {
		return err
	}
	return draw(ctx, out, func() (text []byte) {
		runs, err := g.NextAt(now(), batch)
		if err != nil {
			return nil // the clock was set back
		}
		for first, last := range runs.All() {
			text = appendRun(text, first, last)
		}
		return text
	})
}

func appendRun(text []byte, first, last subjects.ID) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(text, uint64(first)), uint64(last))
}

// draw appends to a file what next returns, until ctx ends.
func draw(ctx context.Context, out string, next func() []byte) error {
	file, err := os.OpenFile(out, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if _, err := file.Write(next()); err != nil {
			return err
		}
	}
	return nil
}
