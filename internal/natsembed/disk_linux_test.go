package natsembed_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/natsid/natsid/internal/testkit/wait"
)

// inOwnMounts runs the rest of a test in a process whose mounts no other process sees. It reports whether this is that
// process.
func inOwnMounts(t *testing.T) bool {
	t.Helper()
	const env = "NATSID_TEST_OWN_MOUNTS"
	if os.Getenv(env) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: syscall.CLONE_NEWNS}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, fs.ErrPermission) {
		t.Skip("this system lets nobody but root mount a disk that can be filled")
	}
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	return false
}

// mount mounts a disk of so many bytes on a new directory, and returns that.
func mount(t *testing.T, size int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// fill uses up the disk of a directory to the last byte, and returns a function that frees it.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "fill")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
	return func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAServerWhoseDiskWasFullWritesAgain(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
	dir := mount(t, 8<<20)
	h, tend := host(t, filepath.Join(dir, "nats"))
	tend()
	kv := bucket(t, connect(t, h.CallersURL(), nats.InProcessServer(h)))
	free := fill(t, dir)
	written := 0
	for put(kv, written) == nil {
		written++
	}
	if put(kv, written) == nil {
		t.Fatal("a server whose disk was full wrote again by itself: a Host is not needed any more")
	}
	wait.Until(t, "the host says that the server cannot write", func() bool { return h.Trouble() != nil })
	free()
	wait.For(t, func() error { return put(kv, written) })
	wait.For(t, h.Trouble)
	again := bucket(t, connect(t, h.CallersURL())) // on the same port
	for k := range written + 1 {
		if _, err := again.Get(t.Context(), key(k)); err != nil {
			t.Errorf("value %d of %d was acknowledged: %v", k, written, err)
		}
	}
}

func TestAServerThatStartedOnAFullDiskWritesOnceItIsFree(t *testing.T) {
	if !inOwnMounts(t) {
		return
	}
	dir := mount(t, 8<<20)
	free := fill(t, dir)
	h, _ := host(t, filepath.Join(dir, "nats"))
	free() // and no restart
	if err := put(bucket(t, connect(t, h.CallersURL())), 0); err != nil {
		t.Error(err)
	}
}

func put(kv jetstream.KeyValue, k int) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := kv.Put(ctx, key(k), make([]byte, 500))
	return err
}

func key(k int) string { return fmt.Sprint("key", k) }
