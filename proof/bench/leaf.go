package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/natsid/natsid/internal/testkit/freeport"
)

const leafPath = "/api/segment/get/bench"

// benchLeaf compares natsid leaf, before one worker, with the least work of a Go program over HTTP: a net/http handler
// that returns a counter. Each caller has a connection of its own to each, which it keeps. CPU is that of natsid leaf.
func benchLeaf(ctx context.Context, dir string, opt options) error {
	server, url, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	defer server.stop()
	counter, err := startSelf(dir, "web", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer counter.stop()
	bare, err := counter.printed(ctx, "127.0.0.1:")
	if err != nil {
		return err
	}
	natsid, err := startNatsid(ctx, dir, opt, url)
	if err != nil {
		return err
	}
	defer natsid.stop()
	address, err := freeport.Get()
	if err != nil {
		return err
	}
	leaf, err := start(dir, "leaf", natsid.cmd.Path, "leaf", "--nats", url, "--listen", address)
	if err != nil {
		return err
	}
	defer leaf.stop()
	opt.conns = 1 // over NATS, to create the tag
	load, err := newLoad(url, opt)
	if err != nil {
		return err
	}
	defer load.close()
	tag := &row{subject: "id.segment.bench", worker: natsid}
	if err := prepare(ctx, load.nc[0], tag, opt.step); err != nil {
		return err
	}
	rows := []*row{
		{name: "bare net/http", address: bare, subject: leafPath, ids: 1, worker: counter},
		{name: "segment", address: address, subject: leafPath, ids: 1, worker: leaf},
		{name: "snowflake", address: address, subject: "/api/snowflake/get/any", ids: 1, worker: leaf},
		{name: "segment n=1000", address: address, subject: leafPath + "?n=1000", ids: 1000, worker: leaf},
	}
	for _, r := range rows {
		err := r.worker.await(ctx, func() error { return load.callers[0].ask(r, nil) })
		if err != nil {
			return err
		}
	}
	if err := measure(ctx, load, rows, opt); err != nil {
		return err
	}
	opt.conns = opt.callers
	return printTable(os.Stdout, opt, rows)
}

// runWeb is a bare HTTP server. It prints only its address.
func runWeb(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	var last atomic.Int64
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(strconv.AppendInt(nil, last.Add(1), 10))
	}))
	fmt.Println(l.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// A webConn is a persistent connection. Its caller does as little work as possible, since it uses the same CPUs.
type webConn struct {
	net.Conn
	in      *bufio.Reader
	path    string
	request []byte // for that path
	body    []byte
}

// askWeb sends a request over HTTP and checks its answer.
func (c *caller) askWeb(r *row) error {
	conn := c.web[r]
	if conn == nil {
		dialed, err := net.DialTimeout("tcp", r.address, replyWithin)
		if err != nil {
			return err
		}
		if c.web == nil {
			c.web = make(map[*row]*webConn)
		}
		conn = &webConn{Conn: dialed, in: bufio.NewReader(dialed)}
		c.web[r] = conn
	}
	body, err := conn.get(r.subject)
	if err == nil {
		return checkIDs(body, r.ids)
	}
	conn.Close()
	delete(c.web, r)
	return err
}

// get returns the body of an answer, until the next call.
func (c *webConn) get(path string) ([]byte, error) {
	if c.path != path {
		c.path, c.request = path, fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: leaf\r\n\r\n", path)
	}
	if err := c.SetDeadline(time.Now().Add(replyWithin)); err != nil {
		return nil, err
	}
	if _, err := c.Write(c.request); err != nil {
		return nil, err
	}
	status, err := c.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200 ")) {
		return nil, fmt.Errorf("answer %q", status)
	}
	size := 0
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			break
		}
		if length, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if size, err = strconv.Atoi(string(length)); err != nil {
				return nil, err
			}
		}
	}
	c.body = append(c.body[:0], make([]byte, size)...)
	_, err = io.ReadFull(c.in, c.body)
	return c.body, err
}
