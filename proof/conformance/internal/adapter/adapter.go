// Package adapter runs an adapter of the conformance suite, a process, and speaks JSON-RPC with it over its standard
// input and output. Whatever the process does, a caller gets an answer or a sentence.
package adapter

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/natsid/natsid/proof/conformance/internal/contract"
)

// A Command is how to start an adapter.
type Command struct {
	Args []string
	Dir  string   // "" is the runner's
	Env  []string // nil is the runner's
}

// A Fault is a fault of the adapter itself, not an error of its client.
type Fault struct{ Says string }

// Error returns a sentence.
func (f *Fault) Error() string { return f.Says }

func faultf(format string, args ...any) *Fault { return &Fault{fmt.Sprintf(format, args...)} }

// A Failure is the error of a call.
type Failure struct {
	Code    int
	Message string
	Data    struct {
		Kind, Reason string
		Code         int
		Text         string
	}
}

// Error returns the kind and the text.
func (f *Failure) Error() string {
	kind := f.Data.Kind
	if f.Data.Reason != "" {
		kind += " after " + f.Data.Reason
	}
	return kind + ": " + f.Message
}

// NoMethod is the code of a failure of a method that the adapter lacks.
const NoMethod = -32601

// An Adapter is a process. Its methods are safe for concurrent use.
type Adapter struct {
	contract *contract.Contract
	cmd      *exec.Cmd
	log      *tail
	ended    chan struct{} // closed when the process has ended and was waited for

	writing sync.Mutex // held while a line is written, so that lines stay whole
	in      io.WriteCloser

	mu    sync.Mutex
	last  int64
	calls map[int64]*Call
	fault *Fault // the first; nil while the adapter works
}

// A Call is a request that was written, or could not be.
type Call struct {
	adapter *Adapter
	method  string
	ID      int64
	Began   time.Time // a moment before the adapter could read the request
	Ended   time.Time // a moment after it wrote the response; set when done is closed
	done    chan struct{}
	result  json.RawMessage
	err     error
}

// Start starts a process, which is killed with the runner where the system can do that.
func Start(c *contract.Contract, command Command) (*Adapter, error) {
	a := &Adapter{
		contract: c, cmd: exec.Command(command.Args[0], command.Args[1:]...), log: &tail{},
		ended: make(chan struct{}), calls: map[int64]*Call{},
	}
	a.cmd.Dir, a.cmd.Env, a.cmd.Stderr = command.Dir, command.Env, a.log
	isolate(a.cmd)
	in, err := a.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := a.cmd.Start(); err != nil {
		return nil, fmt.Errorf("the adapter does not start: %w", err)
	}
	a.in = in
	go a.read(out)
	return a, nil
}

// read hands responses to their calls until the process closes its output, and waits for its end.
func (a *Adapter) read(out io.Reader) {
	lines := bufio.NewReaderSize(out, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			a.receive(line)
		}
		if err != nil {
			break
		}
	}
	waited := make(chan error, 1)
	go func() { waited <- a.cmd.Wait() }()
	select {
	case <-waited:
	case <-time.After(endsWithin):
		kill(a.cmd)
		<-waited
	}
	a.fail(faultf("the adapter died: %v%s", a.cmd.ProcessState, a.log))
	close(a.ended)
}

// A response is one line of an adapter.
type response struct {
	Version string          `json:"jsonrpc"`
	ID      *int64          `json:"id"`
	Result  json.RawMessage `json:"result"`
	Error   *Failure        `json:"error"`
}

func (a *Adapter) receive(line []byte) {
	var r response
	if err := json.Unmarshal(line, &r); err != nil || r.Version != "2.0" || r.ID == nil {
		a.fail(faultf("the adapter printed what is no response: %.100q", line))
		return
	}
	a.mu.Lock()
	c := a.calls[*r.ID]
	delete(a.calls, *r.ID)
	a.mu.Unlock()
	if c == nil {
		a.fail(faultf("the adapter answered request %d twice, or was never sent it: %.100q", *r.ID, line))
		return
	}
	err := a.judge(c.method, r)
	if f, ok := err.(*Fault); ok {
		a.fail(f) // before the caller, who asks for the fault, goes on
	}
	c.end(r.Result, err)
}

// judge returns the error of a call: nil, a *Failure, or a *Fault if the contract does not allow the response.
func (a *Adapter) judge(method string, r response) error {
	switch {
	case r.Error == nil:
		if err := a.contract.CheckResult(method, r.Result); err != nil {
			return faultf("the adapter breaks the contract: %v", err)
		}
		return nil
	case r.Result != nil:
		return faultf("the adapter answered %s with a result and an error", method)
	case r.Error.Code == NoMethod:
		return r.Error
	case a.contract.Kinds[r.Error.Data.Kind] == "":
		return faultf("the adapter answered %s with an error of the kind %q, which the contract has not: %s",
			method, r.Error.Data.Kind, r.Error.Message)
	}
	return r.Error
}

// fail ends all calls under way, and those to come.
func (a *Adapter) fail(f *Fault) {
	a.mu.Lock()
	if a.fault == nil {
		a.fault = f
	}
	calls := a.calls
	a.calls = map[int64]*Call{}
	f = a.fault
	a.mu.Unlock()
	for _, c := range calls {
		c.end(nil, f)
	}
}

// Fault returns the first fault of the adapter, or nil.
func (a *Adapter) Fault() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fault == nil {
		return nil
	}
	return a.fault
}

// Begin sends a request.
func (a *Adapter) Begin(method string, params any) *Call {
	c := &Call{adapter: a, method: method, done: make(chan struct{})}
	a.mu.Lock()
	a.last++
	c.ID = a.last
	fault := a.fault
	if fault == nil {
		a.calls[c.ID] = c
	}
	a.mu.Unlock()
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.ID, "method": method, "params": params})
	c.Began = time.Now()
	switch {
	case fault != nil:
		c.end(nil, fault)
	case err != nil:
		a.fail(faultf("the request %s cannot be written: %v", method, err))
	default:
		a.writing.Lock()
		defer a.writing.Unlock()
		_, _ = a.in.Write(append(line, '\n')) // it fails only once the process has ended, which ends the call
	}
	return c
}

// end ends the call. It must be called once.
func (c *Call) end(result json.RawMessage, err error) {
	c.result, c.err, c.Ended = result, err, time.Now()
	close(c.done)
}

// Done is closed when the call has ended.
func (c *Call) Done() <-chan struct{} { return c.done }

// Wait returns the result, a *Failure or a *Fault. An adapter that has not answered within the time hangs.
func (c *Call) Wait(within time.Duration) (json.RawMessage, error) {
	select {
	case <-c.done:
	case <-time.After(within):
		c.adapter.fail(faultf("the adapter hangs: no response to %s within %v%s", c.method, within, c.adapter.log))
		<-c.done
	}
	return c.result, c.err
}

// endsWithin is how long an adapter may take to end once it has no more requests.
const endsWithin = 5 * time.Second

// Close ends the process, and returns an error unless it ends by itself when its input does.
func (a *Adapter) Close() error {
	_ = a.in.Close()
	select {
	case <-a.ended:
	case <-time.After(endsWithin):
		kill(a.cmd)
		<-a.ended
		return faultf("the adapter did not end within %v of the end of its input", endsWithin)
	}
	if state := a.cmd.ProcessState; !state.Success() {
		return faultf("the adapter ended with %v%s", state, a.log)
	}
	return nil
}

// Kill ends the process.
func (a *Adapter) Kill() {
	kill(a.cmd)
	<-a.ended
}

// A tail keeps the end of a log.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailLen = 1000

// Write implements [io.Writer].
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-tailLen):]
	return len(p), nil
}

// String returns the end of the log as the end of a sentence.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := strings.TrimSpace(string(t.text))
	if text == "" {
		return ""
	}
	return "; its log ends with: " + text
}
