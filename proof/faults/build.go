//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// binaries are the programs of a cluster.
type binaries struct {
	natsid, natsServer string
	holder             string // a program that draws its own snowflakes
	old                string // natsid of an earlier version; "" if no trial needs one
	versions           string // of nats-server and nats.go
}

// build builds them into dir from the module of the current folder: natsid with a
// wall clock that can be set, and the nats-server of the version in go.mod; and an earlier natsid, unless old is "".
func build(ctx context.Context, dir, old string) (b binaries, err error) {
	const (
		natsServer = "github.com/nats-io/nats-server/v2"
		natsGo     = "github.com/nats-io/nats.go"
	)
	b = binaries{
		natsid: filepath.Join(dir, "natsid"), natsServer: filepath.Join(dir, "nats-server"),
		holder: filepath.Join(dir, "holder"),
	}
	if _, err := goTool(ctx, "build", "-trimpath", "-ldflags=-s -w", "-o", b.natsServer, natsServer); err != nil {
		return b, err
	}
	for out, folder := range map[string]string{b.natsid: ".", b.holder: "proof/faults/holder"} {
		if err := buildSettable(ctx, dir, folder, out); err != nil {
			return b, err
		}
	}
	if old != "" {
		if b.old, err = buildOld(ctx, dir, old); err != nil {
			return b, err
		}
	}
	list, err := goTool(ctx, "list", "-m", "-f", "{{.Path}} {{.Version}},", natsServer, natsGo)
	list = strings.NewReplacer("github.com/nats-io/", "", "\n", " ").Replace(list)
	b.versions = strings.TrimSuffix(list, ",")
	return b, err
}

func goTool(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = new(bytes.Buffer)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s (run this in natsid's folder): %w\n%s", strings.Join(args, " "), err, cmd.Stderr)
	}
	return strings.TrimSpace(string(out)), nil
}

// clockEnv names the file that holds a process's clock offset.
const clockEnv = "NATSID_FAULTS_CLOCK"

// The wall clock is ahead by the nanoseconds in a mapped file. The monotonic clock and timers are unchanged, as when
// the clock of a machine is set. time.Now asks package main for the nanoseconds. So the go command compiles only
// package main, and takes all others from its cache. The linker gets the changed package time, which exports the same
// as the original: an added variable, or a function without go:linkname, would renumber its symbols, and the linker
// would refuse it. No other package has time.Now inlined, as it is too large.
const (
	nowOld = "\nfunc Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	nowNew = "\nfunc Now() Time {\n\tsec, nsec, mono := wallNow()\n"

	inTime = `package time

import _ "unsafe"

//go:linkname wallOffset main.wallOffset
func wallOffset() int64

//go:linkname wallNow time.wallNow
//go:noinline
func wallNow() (sec int64, nsec int32, mono int64) {
	sec, nsec, mono = runtimeNow()
	d := wallOffset()
	sec, n := sec+d/1e9, int64(nsec)+d%1e9
	switch {
	case n < 0:
		return sec - 1, int32(n + 1e9), mono
	case n >= 1e9:
		return sec + 1, int32(n - 1e9), mono
	}
	return sec, int32(n), mono
}
`
	inMain = `package main

import (
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

var (
	wallOpened sync.Once // by the first time.Now, which may come before main's init
	wallClock  *atomic.Int64
)

func openWall() {
	name, ok := syscall.Getenv("` + clockEnv + `")
	if !ok {
		return
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("the clock's file: " + err.Error())
	}
	b, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("the clock's file: " + err.Error())
	}
	wallClock = (*atomic.Int64)(unsafe.Pointer(&b[0]))
}

func wallOffset() int64 {
	if wallOpened.Do(openWall); wallClock == nil {
		return 0
	}
	return wallClock.Load()
}
`
	// It runs a tool of the go command; to the linker it gives another package time.
	tool = `#!/bin/sh
case $1 in */link)
	for arg; do
		case $arg in */importcfg.link) sed -i 's|^packagefile time=.*|packagefile time=%s|' "$arg";; esac
	done;;
esac
exec "$@"
`
)

// buildSettable builds the program in a folder with a wall clock that can be set.
func buildSettable(ctx context.Context, dir, folder, out string) error {
	root, err := goTool(ctx, "env", "GOROOT")
	if err != nil {
		return err
	}
	original := filepath.Join(root, "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return err
	}
	if bytes.Count(source, []byte(nowOld)) != 1 {
		return fmt.Errorf("time.Now of this Go release has changed: adapt nowOld in faults/build.go to %s", original)
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return err
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	added := filepath.Join(filepath.Dir(original), "wall_faults.go")
	for name, content := range map[string]string{
		"time.go": strings.Replace(string(source), nowOld, nowNew, 1), "wall.go": inTime, "clock.go": inMain,
		"time.json": overlay(map[string]string{original: at("time.go"), added: at("wall.go")}),
		"main.json": overlay(map[string]string{filepath.Join(folder, "clock_faults.go"): at("clock.go")}),
	} {
		if err := os.WriteFile(at(name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	changed, err := goTool(ctx, "list", "-trimpath", "-export", "-f", "{{.Export}}", "-overlay", at("time.json"),
		"time")
	if err != nil {
		return err
	}
	if err := os.WriteFile(at("tool"), fmt.Appendf(nil, tool, changed), 0o700); err != nil {
		return err
	}
	_, err = goTool(ctx, "-C", folder, "build", "-trimpath", "-ldflags=-s -w", "-overlay", at("main.json"),
		"-toolexec", "'"+at("tool")+"'", "-o", out, ".")
	return err
}

// overlay returns the content of a file for -overlay of the go command: by path, the file that is in its place.
func overlay(replace map[string]string) string {
	list, _ := json.Marshal(map[string]any{"Replace": replace}) // strings never fail
	return string(list)
}

// A clock is the wall clock of one process built by build.
type clock struct {
	path   string
	offset *atomic.Int64
}

func newClock(path string) (*clock, error) {
	if err := os.WriteFile(path, make([]byte, 8), 0o600); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// It stays mapped until this process ends: a clock may be read at any time.
	b, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", path, err)
	}
	return &clock{path, (*atomic.Int64)(unsafe.Pointer(&b[0]))}, nil
}

// set sets the process's clock to the machine's plus d, at once.
func (c *clock) set(d time.Duration) { c.offset.Store(int64(d)) }
