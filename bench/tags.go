package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/nats-io/nats.go"
)

// benchTags makes many tags, starts natsid anew, asks for IDs of each, and then
// compares requests on all of them, each time for another tag, with those to a
// bare echo on as many subjects. With a database it does so once more, with the
// tags in there.
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
	fmt.Printf("%d tags, each in use: a tenth of a range of 1000 is used, and the next one loaded; %s/%s, %d CPUs, %s.\n",
		opt.tags, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	err = b.run(ctx, "KV", "id")
	if err == nil && opt.mysql != "" {
		err = b.run(ctx, "MySQL, guarded", "sql", "--mysql", opt.mysql)
	}
	return err
}

// A tagsBench is the processes that serve all stores.
type tagsBench struct {
	opt      options
	dir, url string
	echo     *process
	load     *load
}

// Windows of requests under way: about tags a worker takes 16 at once, no more; of
// others as many as keep it busy.
const (
	adminWindow = 12
	useWindow   = 256
)

// tenth is how many IDs of a tag's first range are used.
const tenth = "100"

// run prints what one store takes, in a namespace of its own.
func (b *tagsBench) run(ctx context.Context, store, namespace string, flags ...string) error {
	fmt.Printf("\n%s\n", store)
	flags = append(flags, "--namespace", namespace)
	names := make([]string, b.opt.tags)
	ids, create := make([]string, b.opt.tags), make([]string, b.opt.tags)
	for i := range names {
		names[i] = fmt.Sprintf("order.region%d.tag%d", i%10, i)
		ids[i], create[i] = namespace+".segment."+names[i], namespace+".tag.create"
	}
	nc := b.load.nc[0]
	natsid, err := startNatsid(ctx, b.dir, b.opt, b.url, flags...)
	if err != nil {
		return err
	}
	if err := natsid.awaitReply(ctx, nc, namespace+".tag.list", ""); err != nil {
		natsid.stop()
		return err
	}
	took, _, err := askAll(ctx, nc, adminWindow, create, func(i int) string { return fmt.Sprintf(`{"tag":%q}`, names[i]) })
	natsid.stop()
	if err != nil {
		return natsid.failed(err)
	}
	b.say("created", took)
	began := time.Now()
	if natsid, err = startNatsid(ctx, b.dir, b.opt, b.url, flags...); err != nil {
		return err
	}
	defer natsid.stop()
	// The first ID of one of them: listing would leave garbage in memory.
	if err := natsid.awaitReply(ctx, nc, ids[0], ""); err != nil {
		return err
	}
	b.say("started anew, until it gives an ID", time.Since(began))
	return b.use(ctx, natsid, nc, namespace, ids)
}

// use puts all tags to use, and compares.
func (b *tagsBench) use(ctx context.Context, natsid *process, nc *nats.Conn, namespace string, ids []string) error {
	// What requests cost in memory, whatever they are for, is no tag's.
	if _, err := b.load.measure(ctx, &row{subjects: ids[:1], ids: 1, worker: natsid}); err != nil {
		return err
	}
	before, err := natsid.memory()
	if err != nil {
		return err
	}
	took, refused, err := askAll(ctx, nc, useWindow, ids, func(int) string { return tenth })
	if err != nil {
		return natsid.failed(err)
	}
	b.say("used for the first time, "+tenth+" IDs each", took)
	if refused > 0 {
		fmt.Printf("%d of these requests were refused, since the store was slower, and sent again\n", refused)
	}
	if err := sayMemory(natsid, before, b.opt.tags, "right after"); err != nil {
		return err
	}
	rows := []*row{{name: "bare echo", ids: 1, worker: b.echo}, {name: "natsid", subjects: ids, ids: 1, worker: natsid}}
	for i := range ids {
		rows[0].subjects = append(rows[0].subjects, echoSubject+ids[i][len(namespace):])
	}
	if err := measure(ctx, b.load, rows, b.opt); err != nil {
		return err
	}
	if err := sayMemory(natsid, before, b.opt.tags, "at the end"); err != nil {
		return err
	}
	if err := b.sayList(ctx, natsid, nc, namespace); err != nil {
		return err
	}
	return printTable(os.Stdout, b.opt, rows)
}

// sayList lists all tags; last, since what it reads at once stays in memory for
// a while.
func (b *tagsBench) sayList(ctx context.Context, natsid *process, nc *nats.Conn, namespace string) error {
	took, n, err := listAll(ctx, nc, namespace)
	if err == nil && n != b.opt.tags {
		err = fmt.Errorf("%d tags were listed, want %d", n, b.opt.tags)
	}
	if err != nil {
		return natsid.failed(err)
	}
	b.say("listed, page by page", took)
	return nil
}

func (b *tagsBench) say(what string, took time.Duration) {
	fmt.Printf("%-45s %8.2f s, %8.0f tags/s\n", what, took.Seconds(), float64(b.opt.tags)/took.Seconds())
}

func sayMemory(natsid *process, before float64, tags int, when string) error {
	now, err := natsid.memory()
	fmt.Printf("%-45s %8.0f bytes a tag: %.1f MiB, %.1f with one tag in use\n", "in memory "+when, (now-before)/float64(tags), now/(1<<20), before/(1<<20))
	return err
}

// listAll reads all pages, and returns how many tags there are.
func listAll(ctx context.Context, nc *nats.Conn, namespace string) (took time.Duration, n int, err error) {
	began := time.Now()
	for after := ""; ctx.Err() == nil; {
		reply, err := nc.Request(namespace+".tag.list", fmt.Appendf(nil, `{"after":%q}`, after), replyWithin)
		if err == nil {
			err = errorOf(reply)
		}
		var page []struct{ Tag string }
		if err == nil {
			err = json.Unmarshal(reply.Data, &page)
		}
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
