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
	overlay, err := writeOverlay(ctx, dir)
	if err != nil {
		return b, err
	}
	const (
		natsid     = "github.com/natsid/natsid"
		natsServer = "github.com/nats-io/nats-server/v2"
		natsGo     = "github.com/nats-io/nats.go"
	)
	b = binaries{
		natsid: filepath.Join(dir, "natsid"), natsServer: filepath.Join(dir, "nats-server"),
		holder: filepath.Join(dir, "holder"),
	}
	// With the same overlay: packages of all programs are compiled once.
	for out, path := range map[string]string{
		b.natsid: natsid, b.natsServer: natsServer, b.holder: natsid + "/proof/faults/holder",
	} {
		if _, err := goTool(ctx, "build", "-trimpath", "-overlay", overlay, "-o", out, path); err != nil {
			return b, err
		}
	}
	if old != "" {
		if b.old, err = buildOld(ctx, dir, overlay, old); err != nil {
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

// clockEnv names the file that holds a process's clock offset, for the overlay below.
const clockEnv = "NATSID_FAULTS_CLOCK"

// The overlay of package time in natsid: the wall clock is ahead by the nanoseconds in a mapped file. The monotonic
// clock and timers are unchanged, as when the clock of a machine is set.
const (
	nowOld = "	sec, nsec, mono := runtimeNow()\n"
	nowNew = nowOld + "	sec, nsec = setWall(sec, nsec)\n"

	setWall = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

var wallOffset *atomic.Int64

func init() {
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
	wallOffset = (*atomic.Int64)(unsafe.Pointer(&b[0]))
}

func setWall(sec int64, nsec int32) (int64, int32) {
	if wallOffset == nil {
		return sec, nsec
	}
	d := wallOffset.Load()
	sec, n := sec+d/1e9, int64(nsec)+d%1e9
	switch {
	case n < 0:
		return sec - 1, int32(n + 1e9)
	case n >= 1e9:
		return sec + 1, int32(n - 1e9)
	}
	return sec, int32(n)
}
`
)

// writeOverlay writes the overlay and returns the path of a file for `go build -overlay`.
func writeOverlay(ctx context.Context, dir string) (string, error) {
	root, err := goTool(ctx, "env", "GOROOT")
	if err != nil {
		return "", err
	}
	original := filepath.Join(root, "src", "time", "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	head, now, ok := strings.Cut(string(source), "\nfunc Now() Time {\n")
	if !ok || !strings.HasPrefix(now, nowOld) {
		return "", fmt.Errorf("time.Now of this Go release has changed: adapt nowOld in faults/build.go to %s",
			original)
	}
	changed, added := filepath.Join(dir, "time.go"), filepath.Join(dir, "setwall.go")
	now = strings.Replace(now, nowOld, nowNew, 1)
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{
		original: changed,
		filepath.Join(filepath.Dir(original), "setwall_faults.go"): added,
	}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	for name, content := range map[string]string{
		changed: head + "\nfunc Now() Time {\n" + now, added: setWall, overlay: string(list),
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	return overlay, nil
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
