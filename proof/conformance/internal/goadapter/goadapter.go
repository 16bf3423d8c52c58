// Package goadapter is the adapter of package client for the conformance suite.
//
// It is also what the suite's own tests run, built with mutants of package client.
package goadapter

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/natsid/natsid/client"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// An adapter is one process's worth of state.
type adapter struct {
	out   io.Writer
	calls sync.WaitGroup

	mu      sync.Mutex // also orders lines of out
	link    *link      // nil before the first connect
	cancels map[int64]context.CancelFunc
}

// A request is one JSON-RPC request.
type rpc struct {
	ID     int64           `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// A failure is the error of a JSON-RPC response.
type failure struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    *data  `json:"data,omitempty"`
}

type data struct {
	Kind   string `json:"kind"`
	Reason string `json:"reason,omitempty"`
	Code   int    `json:"code,omitempty"`
	Text   string `json:"text,omitempty"`
}

// methods are those that end at once, calls those that wait.
var (
	methods = map[string]func(*adapter, json.RawMessage) (any, error){
		"connect": (*adapter).connect, "disconnect": (*adapter).disconnect, "cancel": (*adapter).cancel,
		"close": (*adapter).close, "stats": (*adapter).stats,
		"decode": decode,
	}
	calls = map[string]func(context.Context, *client.Handle, params) (any, error){
		"next": next, "nextN": nextN, "burst": burst,
	}
)

// Run serves requests from in until its end, and returns once all calls have ended.
func Run(in io.Reader, out io.Writer) error {
	a := &adapter{out: out, cancels: map[int64]context.CancelFunc{}}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var r rpc
			if err := json.Unmarshal(line, &r); err != nil {
				return fmt.Errorf("a request is not JSON: %w", err)
			}
			a.serve(r)
		}
		if err != nil {
			a.end()
			return nil
		}
	}
}

// end cancels what is under way.
func (a *adapter) end() {
	a.mu.Lock()
	for _, cancel := range a.cancels {
		cancel()
	}
	a.mu.Unlock()
	a.calls.Wait()
	if a.link != nil {
		a.link.nc.Close()
	}
}

func (a *adapter) serve(r rpc) {
	if f := calls[r.Method]; f != nil {
		a.call(r, f)
		return
	}
	f := methods[r.Method]
	if r.Method == "describe" {
		f = describe
	}
	if f == nil {
		a.write(r.ID, nil, &failure{Code: -32601, Message: "no method " + r.Method})
		return
	}
	result, err := f(a, r.Params)
	a.answer(r.ID, result, err)
}

func describe(*adapter, json.RawMessage) (any, error) {
	all := slices.AppendSeq(slices.Collect(maps.Keys(methods)), maps.Keys(calls))
	return map[string]any{
		"language": "Go", "client": "github.com/natsid/natsid/client", "profile": "full",
		"methods": append(all, "describe"),
	}, nil
}

// params are the parameters of all calls.
type params struct {
	Target    json.RawMessage `json:"target"`
	TimeoutMs *int64          `json:"timeoutMs"`
	N         json.RawMessage `json:"n"`
	Calls     int             `json:"calls"`
}

// call begins a call, which the request's ID can cancel from then on.
func (a *adapter) call(r rpc, f func(context.Context, *client.Handle, params) (any, error)) {
	var p params
	h, err := (*client.Handle)(nil), json.Unmarshal(r.Params, &p)
	if err == nil {
		h, err = a.handle(p.Target)
	}
	if err != nil {
		a.answer(r.ID, nil, err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	if p.TimeoutMs != nil {
		ctx, cancel = context.WithTimeout(context.Background(), time.Duration(*p.TimeoutMs)*time.Millisecond)
	}
	a.mu.Lock()
	a.cancels[r.ID] = cancel
	a.mu.Unlock()
	a.calls.Go(func() {
		defer cancel()
		result, err := f(ctx, h, p)
		a.mu.Lock()
		delete(a.cancels, r.ID)
		a.mu.Unlock()
		a.answer(r.ID, result, err)
	})
}

func next(ctx context.Context, h *client.Handle, _ params) (any, error) {
	id, err := h.Next(ctx)
	return map[string]subjects.ID{"id": id}, err
}

func nextN(ctx context.Context, h *client.Handle, p params) (any, error) {
	n, err := Count(p.N)
	if err != nil {
		return nil, err
	}
	got, err := h.NextN(ctx, n)
	runs := make([][2]subjects.ID, 0, len(got))
	for _, r := range got {
		runs = append(runs, [2]subjects.ID{subjects.ID(r.First), subjects.ID(r.Last)})
	}
	return map[string]any{"runs": runs}, err
}

// Count returns the count that a JSON value is. What Go's compiler refuses, it refuses as the client does other counts.
func Count(value json.RawMessage) (n int, err error) {
	if json.Unmarshal(value, &n) == nil {
		return n, nil
	}
	text := string(value)
	_ = json.Unmarshal(value, &text) // if it is a text
	return 0, subjects.Errorf(subjects.BadRequest, "%s IDs: want 1 to %d", text, client.MaxIDs)
}

func burst(ctx context.Context, h *client.Handle, p params) (any, error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	ids, kinds := []subjects.ID{}, map[string]int{}
	for range p.Calls {
		wg.Go(func() {
			id, err := h.Next(ctx)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				kind, _ := Kind(err)
				kinds[kind]++
				return
			}
			ids = append(ids, id)
		})
	}
	wg.Wait()
	return map[string]any{"ids": ids, "kinds": kinds}, nil
}

func (a *adapter) cancel(raw json.RawMessage) (any, error) {
	var p struct {
		Request int64 `json:"request"`
	}
	err := json.Unmarshal(raw, &p)
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel := a.cancels[p.Request]; cancel != nil {
		cancel()
	}
	return struct{}{}, err
}

func (a *adapter) stats(raw json.RawMessage) (any, error) {
	var p params
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, err
	}
	h, err := a.handle(p.Target)
	if err != nil {
		return nil, err
	}
	s := h.Stats()
	return map[string]any{
		"ids": s.IDs, "requests": s.Requests, "hedges": s.Hedges, "retries": s.Retries, "failures": s.Failures,
		"held": s.Held, "usualMs": float64(s.Usual) / float64(time.Millisecond),
	}, nil
}

func decode(_ *adapter, raw json.RawMessage) (any, error) {
	var p struct{ ID, Layout string }
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, err
	}
	parts, err := Decode(p.Layout, p.ID)
	if err != nil {
		return nil, subjects.Errorf(subjects.BadRequest, "%v", err)
	}
	return parts, nil
}

// Parts are the result of the method decode.
type Parts struct {
	TimeMs   int64 `json:"timeMs,string"`
	Tick     int64 `json:"tick,string"`
	Worker   int   `json:"worker"`
	Site     int   `json:"site"`
	Machine  int   `json:"machine"`
	Business int64 `json:"business,string"`
	Sequence int64 `json:"sequence,string"`
}

// Decode splits a snowflake of a layout.
func Decode(layout, text string) (Parts, error) {
	l, err := snowflake.ParseLayout(layout)
	if err != nil {
		return Parts{}, err
	}
	id, err := subjects.ParseID(text)
	if err != nil {
		return Parts{}, err
	}
	p, err := l.Decode(id)
	return Parts{p.Time.UnixMilli(), p.Tick, p.Worker, p.Site, p.Machine, p.Business, p.Sequence}, err
}

// answer writes the response to a request.
func (a *adapter) answer(id int64, result any, err error) {
	if err == nil {
		a.write(id, result, nil)
		return
	}
	d := &data{}
	d.Kind, d.Reason = Kind(err)
	if e, ok := errors.AsType[*subjects.Error](err); ok {
		d.Code, d.Text = int(e.Code), e.Text
	}
	a.write(id, nil, &failure{Code: -32000, Message: err.Error(), Data: d})
}

func (a *adapter) write(id int64, result any, f *failure) {
	line, err := json.Marshal(struct {
		Version string   `json:"jsonrpc"`
		ID      int64    `json:"id"`
		Result  any      `json:"result,omitempty"`
		Error   *failure `json:"error,omitempty"`
	}{"2.0", id, result, f})
	if err != nil {
		panic(err) // a result that is no JSON
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	_, _ = a.out.Write(append(line, '\n')) // without a reader there is nothing left to do
}
