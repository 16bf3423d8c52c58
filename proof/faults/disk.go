//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// ownMountsEnv is set in a process whose mounts no other process sees.
const ownMountsEnv = "NATSID_FAULTS_OWN_MOUNTS"

// withOwnMounts runs this program again in a mount namespace of its own, for
// disks that can be filled, and returns its exit code. ok is false if the system
// does not allow it: some allow it only to root.
func withOwnMounts() (code int, ok bool) {
	self, err := os.Executable()
	if err != nil {
		return 0, false
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), ownMountsEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Cloneflags: syscall.CLONE_NEWNS}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		return 0, false
	}
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // Ctrl-C reaches both processes: the other one acts on it
	_ = cmd.Wait()                                       // the exit code reports how it ended
	return cmd.ProcessState.ExitCode(), true
}

// mountDisk mounts a disk of size bytes on dir.
func mountDisk(dir string, size int) error {
	if os.Getenv(ownMountsEnv) == "" {
		return errNoMounts
	}
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := syscall.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		return fmt.Errorf("mounting on %s: %w", dir, err)
	}
	return nil
}

// errNoMounts is returned when a fault needs a disk and cannot mount one.
var errNoMounts = errors.New("a disk that can be filled needs a mount namespace: " +
	"run as root, or where users may create them")

// watchDisk writes a small file to the harness's disk continuously, as workers and nats-servers do. The function that
// it returns stops the writes, and returns the duration of the slowest.
func watchDisk(h *harness) (slowest func() time.Duration) {
	stop, most := make(chan struct{}), make(chan time.Duration, 1)
	go func() {
		var longest time.Duration
		for {
			began := time.Now()
			_ = writeSynced(h.path("disk")) // an error is not a stall
			longest = max(longest, time.Since(began))
			select {
			case <-time.After(200 * time.Millisecond):
			case <-stop:
				most <- longest
				return
			}
		}
	}()
	return func() time.Duration { close(stop); return <-most }
}

func writeSynced(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString("x"); err != nil {
		return err
	}
	return f.Sync()
}

// fillDisk uses up the free space on the disk of dir, to the last byte, and returns a function that frees it again.
func fillDisk(dir string) (free func() error, err error) {
	name := filepath.Join(dir, "fill")
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for block := make([]byte, 64<<10); len(block) > 0; {
		_, err := f.Write(block)
		if errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	return func() error { return os.Remove(name) }, nil
}
