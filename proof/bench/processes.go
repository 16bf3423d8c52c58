package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const (
	echoSubject = "bench.echo"
	readyWithin = time.Minute // until a process's first reply
)

// runRole is the main function of a child. It ends when standard input does, so
// that no child outlives a parent that was killed.
func runRole(role, argument string) error {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the whole group, but the parent decides on the order
	switch role {
	case "server":
		return runServer(argument)
	case "echo":
		return runEcho(argument)
	case "web":
		return runWeb(argument)
	case "member":
		return runMember(argument)
	case "copy":
		return runCopy(argument)
	}
	return fmt.Errorf("unexpected argument %q", role)
}

// runServer is a nats-server with the settings of natsid's embedded one. It prints only its URL, and that of its
// monitoring.
func runServer(dir string) error {
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true,
		JetStream: true, StoreDir: dir, SyncAlways: true, HTTPHost: "127.0.0.1", HTTPPort: server.RANDOM_PORT,
	})
	if err != nil {
		return err
	}
	s.Start()
	defer s.Shutdown()
	if !s.ReadyForConnections(readyWithin) {
		return errors.New("nats-server is not ready for connections")
	}
	fmt.Printf("%s\nhttp://%s\n", s.ClientURL(), s.MonitorAddr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// runEcho is the least work of a NATS worker: it answers with 8 bytes, which are a valid ID.
func runEcho(url string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	reply := []byte("12345678")
	echo := func(m *nats.Msg) { m.Respond(reply) }
	for _, subject := range []string{echoSubject, echoSubject + ".>"} {
		if _, err := nc.QueueSubscribe(subject, "natsid", echo); err != nil {
			return err
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// buildNatsid builds the parent module's main package.
func buildNatsid(ctx context.Context, to string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-o", to, ".")
	cmd.Dir = "../.." // a module of its own, with its own choice of dependencies
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build of the parent folder (run this in proof/bench, or give -natsid): %w\n%s", err, out)
	}
	return nil
}

// startServer starts a nats-server and returns its URL.
func startServer(ctx context.Context, dir string) (p *process, url string, err error) {
	if p, err = startSelf(dir, "server", filepath.Join(dir, "jetstream")); err != nil {
		return nil, "", err
	}
	if url, err = p.printed(ctx, "nats://"); err != nil {
		p.stop()
	}
	return p, url, err
}

// startSelf starts this program in another role: see runRole.
func startSelf(dir, role, argument string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(dir, role, self, role, argument)
}

// startNatsid starts a natsid, which is built once.
func startNatsid(ctx context.Context, dir string, opt options, url string, flags ...string) (*process, error) {
	exe := opt.natsid
	if exe == "" {
		exe = filepath.Join(dir, "natsid.exe")
		if _, err := os.Stat(exe); err != nil {
			if err := buildNatsid(ctx, exe); err != nil {
				return nil, err
			}
		}
	}
	args := append([]string{"--nats", url, "--data", filepath.Join(dir, "data"), "--http", ""}, flags...)
	return start(dir, "natsid", exe, args...)
}

// A process is a child of this one.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	log   string        // file of all that it printed
	ended chan struct{} // closed when it has exited
}

// otherCPUs are the CPUs of the started processes, in the form of taskset; "" for the same as this process's.
var otherCPUs string

// whichCPUs describes otherCPUs.
func whichCPUs() string {
	if otherCPUs == "" {
		return "use the same CPUs"
	}
	return "have CPU " + otherCPUs + ", the callers the others"
}

func start(dir, name, path string, args ...string) (*process, error) {
	if otherCPUs != "" {
		path, args = "taskset", append([]string{"--cpu-list", otherCPUs, path}, args...)
	}
	p := &process{name: name, cmd: exec.Command(path, args...), ended: make(chan struct{})}
	p.log = filepath.Join(dir, name+".log")
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own descriptor
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// NATS_URL, NATSID_… in this environment would change natsid's settings.
	p.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "NATS") })
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop ends the process, by force if it does not end within 5 s.
func (p *process) stop() {
	p.stdin.Close()
	p.cmd.Process.Signal(os.Interrupt)
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		p.cmd.Process.Kill()
		<-p.ended
	}
}

// printed waits until the process has printed a line that begins with start, and
// returns it.
func (p *process) printed(ctx context.Context, start string) (line string, err error) {
	err = p.await(ctx, func() error {
		all, err := os.ReadFile(p.log)
		if err != nil {
			return err
		}
		for text := range strings.Lines(string(all)) {
			if strings.HasPrefix(text, start) && strings.HasSuffix(text, "\n") {
				line = strings.TrimSpace(text)
				return nil
			}
		}
		return fmt.Errorf("no line %q yet", start)
	})
	return line, err
}

// awaitReply sends a request until the reply is not an error. It waits longer than the creation of the first strict
// tag takes: a second request for it would be refused.
func (p *process) awaitReply(ctx context.Context, nc *nats.Conn, subject, body string) error {
	return p.await(ctx, func() error {
		if _, err := request(nc, subject, []byte(body), 10*time.Second); err != nil {
			return fmt.Errorf("%s %s: %w", subject, body, err)
		}
		return nil
	})
}

// await retries until there is no error, the process has exited, or readyWithin has passed.
func (p *process) await(ctx context.Context, try func() error) error {
	late := time.After(readyWithin)
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.ended:
			return p.failed(errors.New(p.cmd.ProcessState.String()))
		case <-late:
			return p.failed(fmt.Errorf("not ready within %v: %w", readyWithin, err))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// failed returns err with the output of the process.
func (p *process) failed(err error) error {
	log, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s: %w; it printed:\n%s", p.name, err, log)
}

// cpu returns the processor seconds that the process has used: see cpuSeconds.
func (p *process) cpu() (float64, error) {
	seconds, err := cpuSeconds(p.cmd.Process.Pid)
	if err != nil {
		return 0, p.failed(err)
	}
	return seconds, nil
}

// cpuSeconds returns the processor seconds that a process has used so far, to 10 ms; NaN
// on systems other than Linux.
func cpuSeconds(pid int) (float64, error) {
	if runtime.GOOS != "linux" {
		return math.NaN(), nil
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// utime and stime are fields 14 and 15, see proc_pid_stat(5). They are counted from
	// the end of the second, the command in parentheses, which may hold spaces.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("unexpected /proc/PID/stat: %q", stat)
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	const ticks = 100 // per second, wherever Go runs on Linux
	return float64(user+system) / ticks, errors.Join(err1, err2)
}
