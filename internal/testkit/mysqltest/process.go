package mysqltest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// A process is one life of a server. A nil process is one that never lived.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and was waited for
}

func (p *process) running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// kill ends the process, whatever state it is in, and waits for the end.
func (p *process) kill() {
	if p.running() {
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// Run starts a server that is down on the data and the port it had, and
// returns when it has answered a query.
func (s *Server) Run() {
	s.tb.Helper()
	s.needPrivate("Run")
	if s.proc.running() {
		s.tb.Fatal("mysqltest: Run: the server runs")
	}
	s.boot()
	s.greet()
}

// Kill ends the server as a power cut would end it, but that the system keeps
// what was written. One that is down stays down.
func (s *Server) Kill() {
	s.tb.Helper()
	s.needPrivate("Kill")
	s.proc.kill()
}

// Stop shuts the server down as its operator would, also if it is paused. One
// that is down stays down.
func (s *Server) Stop() {
	s.tb.Helper()
	s.needPrivate("Stop")
	if !s.proc.running() {
		return
	}
	_ = resume(s.proc.cmd.Process)
	_ = s.proc.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.proc.done:
	case <-time.After(lookMax):
		s.proc.kill()
		s.tb.Fatalf("mysqltest: the server did not stop within %v\n%s", lookMax, s.log())
	}
}

// Pause makes the server stand still, as on a machine that hangs: the system
// accepts connections and bytes for it, and no answer comes. It returns when
// no thread of it runs any more. It skips the test where that cannot be known:
// anywhere but on Linux.
func (s *Server) Pause() {
	s.tb.Helper()
	s.needPrivate("Pause")
	s.mustRun("Pause")
	if !canPause {
		s.tb.Skipf("%s needs Linux to pause a server", s.tb.Name())
	}
	if err := pause(s.proc.cmd.Process, lookMax); err != nil {
		s.tb.Fatalf("mysqltest: Pause: %v", err)
	}
}

// Resume lets a paused server go on where it was, in the middle of a
// statement if need be.
func (s *Server) Resume() {
	s.tb.Helper()
	s.needPrivate("Resume")
	s.mustRun("Resume")
	if err := resume(s.proc.cmd.Process); err != nil {
		s.tb.Fatalf("mysqltest: Resume: %v", err)
	}
}

func (s *Server) mustRun(method string) {
	s.tb.Helper()
	if !s.proc.running() {
		s.tb.Fatalf("mysqltest: %s: the server is down", method)
	}
}

// boot starts the process and returns when root has had an answer from it.
func (s *Server) boot() {
	s.tb.Helper()
	p, err := s.launch()
	if err != nil {
		s.tb.Fatalf("mysqltest: %v", err)
	}
	s.proc = p
	ctx, cancel := context.WithTimeout(s.tb.Context(), lookMax)
	defer cancel()
	for {
		err := s.execRoot(ctx, "DO 1")
		if err == nil {
			return
		}
		select {
		case <-p.done:
			s.tb.Fatalf("mysqltest: the server did not start: %v\n%s", p.cmd.ProcessState, s.log())
		case <-ctx.Done():
			s.tb.Fatalf("mysqltest: the server did not answer within %v: %v\n%s", lookMax, err, s.log())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// launch starts the process.
func (s *Server) launch() (*process, error) {
	host, port, err := net.SplitHostPort(s.cfg.Addr)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(s.kit.server, append(options(s.data()),
		"--bind-address="+host,
		"--port="+port,
		"--socket="+s.socket(),
		"--pid-file="+filepath.Join(s.dir, "pid"),
		"--tmpdir="+s.dir,
		"--loose-mysqlx=OFF", // it would listen on a second port, the same for all
	)...)
	cmd.Stdout, cmd.Stderr = log, log
	dieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", s.kit.server, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(p.done) }()
	return p, nil
}

// greet returns when the test's user has had an answer over TCP.
func (s *Server) greet() {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(s.tb.Context(), lookMax)
	defer cancel()
	if _, err := s.db.ExecContext(ctx, "DO 1"); err != nil {
		s.tb.Fatalf("mysqltest: the server runs, but does not serve %s: %v\n%s", user, err, s.log())
	}
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "log") }

// log returns the end of what the server wrote in all its lives.
func (s *Server) log() []byte {
	text, _ := os.ReadFile(s.logPath())
	return tail(text)
}
