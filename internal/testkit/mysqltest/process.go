package mysqltest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A process is one run of the server program. A nil process was never started.
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

// Run starts a server that is down, with its former data and port, and returns when it has answered a query.
func (s *Server) Run() {
	s.tb.Helper()
	s.needPrivate("Run")
	if s.proc.running() {
		s.tb.Fatal("mysqltest: Run: the server runs")
	}
	s.boot()
	s.greet()
}

// Kill ends the server as a power cut would, except that the system keeps what
// was written. One that is down stays down.
func (s *Server) Kill() {
	s.tb.Helper()
	s.needPrivate("Kill")
	s.proc.kill()
}

// Stop shuts the server down as its operator would, also if it is paused. One that is down stays down.
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
	case <-time.After(patience):
		s.proc.kill()
		s.tb.Fatalf("mysqltest: the server did not stop within %v\n%s", patience, s.folder.log())
	}
}

// Pause stops the server in place, as on a machine that hangs: the system accepts connections and bytes for it, and no
// answer comes. It returns when none of its threads runs any more. It skips the test on systems other than Linux, where
// that cannot be seen.
func (s *Server) Pause() {
	s.tb.Helper()
	s.needPrivate("Pause")
	s.mustRun("Pause")
	if !canPause {
		s.tb.Skipf("%s needs Linux to pause a server", s.tb.Name())
	}
	if err := pause(s.proc.cmd.Process, patience); err != nil {
		s.tb.Fatalf("mysqltest: Pause: %v", err)
	}
}

// Resume lets a paused server continue where it was, even in the middle of a statement.
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
	p, err := s.kit.launch(s.folder, s.cfg.Addr, s.tls...)
	if err != nil {
		s.tb.Fatalf("mysqltest: %v", err)
	}
	s.proc = p
	ctx, cancel := context.WithTimeout(s.tb.Context(), patience)
	defer cancel()
	for {
		err := s.folder.asRoot(ctx, "DO 1")
		if err == nil {
			return
		}
		select {
		case <-p.done:
			s.tb.Fatalf("mysqltest: the server did not start: %v\n%s", p.cmd.ProcessState, s.folder.log())
		case <-ctx.Done():
			s.tb.Fatalf("mysqltest: the server did not answer within %v: %v\n%s", patience, err, s.folder.log())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// launch starts a server on a folder, which listens on addr.
func (k *kit) launch(f folder, addr string, more ...string) (*process, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(f.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	cmd := exec.Command(k.server, append(append(options(f.data()), more...),
		"--bind-address="+host,
		"--port="+port,
		"--socket="+f.socket(),
		"--pid-file="+f.pid(),
		"--tmpdir="+string(f),
		"--loose-mysqlx=OFF", // it would listen on a second port, the same for all
	)...)
	cmd.Stdout, cmd.Stderr = log, log
	dieWithUs(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", k.server, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() { _ = cmd.Wait(); close(p.done) }()
	return p, nil
}

// greet waits until the server answers the test's user over TCP.
func (s *Server) greet() {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(s.tb.Context(), patience)
	defer cancel()
	if _, err := s.db.ExecContext(ctx, "DO 1"); err != nil {
		s.tb.Fatalf("mysqltest: the server runs, but does not serve %s: %v\n%s", user, err, s.folder.log())
	}
}
