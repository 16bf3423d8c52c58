package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// benchTags creates many tags, restarts natsid, requests IDs of each, and then compares requests for all of them,
// each for another tag, with requests to a bare echo on as many subjects. With a database it repeats that with the
// tags in it.
func benchTags(ctx context.Context, dir string, opt options) error {
	server, url, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	defer server.stop()
	echo, err := startSelf(dir, "echo", url)
	if err != nil {
		return err
	}
	defer echo.stop()
	load, err := newLoad(url, opt)
	if err != nil {
		return err
	}
	defer load.close()
	b := &tagsBench{opt: opt, dir: dir, url: url, echo: echo, load: load}
	fmt.Printf("%d tags, each in use: a tenth of a range of 1000 is used, and the next one loaded; %s.\n",
		opt.tags, machine())
	if err := b.run(ctx, "KV", "id"); err != nil || opt.mysql == "" {
		return err
	}
	return b.run(ctx, "MySQL, guarded", "sql", "--mysql", opt.mysql)
}

// A tagsBench is the measurement of one store after the other.
type tagsBench struct {
	opt      options
	dir, url string
	echo     *process
	load     *load
}

// Bounds of the requests in flight: a worker takes at most 16 requests about tags at once; of others there are enough
// to keep it busy.
const (
	adminWindow = 12
	useWindow   = 256
)

// tenth is how many IDs of a tag's first range are used.
const tenth = "100"

// run prints the figures of one store, in a namespace of its own.
func (b *tagsBench) run(ctx context.Context, store, namespace string, flags ...string) error {
	fmt.Printf("\n%s\n", store)
	flags = append(flags, "--namespace", namespace)
	names := make([]string, b.opt.tags)
	ids := make([]string, b.opt.tags)
	for i := range names {
		names[i] = fmt.Sprintf("order.region%d.tag%d", i%10, i)
		ids[i] = namespace + ".segment." + names[i]
	}
	if err := b.create(ctx, namespace, names, flags); err != nil {
		return err
	}
	nc, began := b.load.nc[0], time.Now()
	natsid, err := startNatsid(ctx, b.dir, b.opt, b.url, flags...)
	if err != nil {
		return err
	}
	defer natsid.stop()
	// One ID, since a listing would leave garbage in memory.
	if err := natsid.awaitReply(ctx, nc, ids[0], ""); err != nil {
		return err
	}
	b.print("restarted, until it issues an ID", time.Since(began))
	return b.use(ctx, natsid, nc, namespace, ids)
}

// create creates the tags with a natsid that is stopped afterwards.
func (b *tagsBench) create(ctx context.Context, namespace string, names, flags []string) error {
	natsid, err := startNatsid(ctx, b.dir, b.opt, b.url, append(flags, "--max-new-tags", "0")...)
	if err != nil {
		return err
	}
	defer natsid.stop()
	nc := b.load.nc[0]
	if err := natsid.awaitReply(ctx, nc, namespace+".tag.list", ""); err != nil {
		return err
	}
	subjects := slices.Repeat([]string{namespace + ".tag.create"}, len(names))
	creation := batch{nc, adminWindow, subjects, func(i int) string { return fmt.Sprintf(`{"tag":%q}`, names[i]) }}
	took, _, err := creation.send(ctx)
	if err != nil {
		return natsid.failed(err)
	}
	b.print("created", took)
	return nil
}

// use requests IDs of all tags, and compares.
func (b *tagsBench) use(ctx context.Context, natsid *process, nc *nats.Conn, namespace string, ids []string) error {
	// The memory that any requests need is not that of tags.
	if _, err := b.load.measure(ctx, &row{subjects: ids[:1], ids: 1, worker: natsid}); err != nil {
		return err
	}
	before, err := natsid.memory()
	if err != nil {
		return err
	}
	took, refused, err := batch{nc, useWindow, ids, func(int) string { return tenth }}.send(ctx)
	if err != nil {
		return natsid.failed(err)
	}
	b.print("used for the first time, "+tenth+" IDs each", took)
	if refused > 0 {
		fmt.Printf("%d of these requests were refused because the store was slower, and were retried\n", refused)
	}
	if err := printMemory(natsid, before, b.opt.tags, "right after"); err != nil {
		return err
	}
	rows := []*row{{name: "bare echo", ids: 1, worker: b.echo}, {name: "natsid", subjects: ids, ids: 1, worker: natsid}}
	for i := range ids {
		rows[0].subjects = append(rows[0].subjects, echoSubject+ids[i][len(namespace):])
	}
	if err := measure(ctx, b.load, rows, b.opt); err != nil {
		return err
	}
	if err := printMemory(natsid, before, b.opt.tags, "at the end"); err != nil {
		return err
	}
	if err := b.printList(ctx, natsid, nc, namespace); err != nil {
		return err
	}
	return printTable(os.Stdout, b.opt, rows)
}

// printList lists all tags. It comes last, since the listing stays in memory for a while.
func (b *tagsBench) printList(ctx context.Context, natsid *process, nc *nats.Conn, namespace string) error {
	took, n, err := listAll(ctx, nc, namespace)
	if err != nil {
		return natsid.failed(err)
	}
	if n != b.opt.tags {
		return natsid.failed(fmt.Errorf("%d tags were listed, want %d", n, b.opt.tags))
	}
	b.print("listed, page by page", took)
	return nil
}

func (b *tagsBench) print(what string, took time.Duration) {
	fmt.Printf("%-45s %8.2f s, %8.0f tags/s\n", what, took.Seconds(), float64(b.opt.tags)/took.Seconds())
}

func printMemory(natsid *process, before float64, tags int, when string) error {
	now, err := natsid.memory()
	fmt.Printf("%-45s %8.0f bytes per tag: %.1f MiB, %.1f with one tag in use\n",
		"in memory "+when, (now-before)/float64(tags), now/(1<<20), before/(1<<20))
	return err
}

// listAll reads all pages, and returns how many tags there are.
func listAll(ctx context.Context, nc *nats.Conn, namespace string) (took time.Duration, n int, err error) {
	began := time.Now()
	for after := ""; ctx.Err() == nil; {
		page, err := listPage(nc, namespace, after)
		if err != nil {
			return 0, 0, fmt.Errorf("%s.tag.list after %d tags: %w", namespace, n, err)
		}
		if len(page) == 0 {
			return time.Since(began), n, nil
		}
		after = page[len(page)-1].Tag
		n += len(page)
	}
	return 0, 0, errors.Join(ctx.Err(), io.ErrUnexpectedEOF)
}

type listed struct{ Tag string }

// listPage reads the page that begins after a tag.
func listPage(nc *nats.Conn, namespace, after string) (page []listed, err error) {
	reply, err := request(nc, namespace+".tag.list", fmt.Appendf(nil, `{"after":%q}`, after), replyWithin)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(reply.Data, &page)
	return page, err
}
