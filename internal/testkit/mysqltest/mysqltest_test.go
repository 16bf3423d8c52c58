package mysqltest_test

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/natsid/natsid/internal/testkit/mysqltest"
	"github.com/natsid/natsid/internal/testkit/wait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A test that times out runs no cleanup: the server must end all the same.
func TestAServerDoesNotOutliveTheTests(t *testing.T) {
	const child = "MYSQLTEST_CHILD"
	if os.Getenv(child) != "" {
		s := mysqltest.Start(t)
		os.Stdout.WriteString("addr " + s.Addr() + "\n")
		time.Sleep(time.Hour)
	}
	s := mysqltest.Start(t) // skips where the child would
	s.Pause()               // the same
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), child+"=1", "TMPDIR="+t.TempDir()) // which it cannot clean up
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var text []byte
	for buf := make([]byte, 4096); !bytes.HasSuffix(text, []byte("\n")); {
		n, err := out.Read(buf)
		if text = append(text, buf[:n]...); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	_, addr, ok := strings.Cut(strings.TrimSpace(string(text)), "addr ")
	if !ok {
		t.Fatalf("the child says %q", text)
	}
	wait.Until(t, addr+" listens no longer", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}

func TestWithoutAServerCIFails(t *testing.T) {
	const child = "MYSQLTEST_LACKS"
	if os.Getenv(child) != "" {
		mysqltest.LookNowhere(t)
		mysqltest.Start(t)
		return
	}
	run := func(ci string) (string, error) {
		cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), child+"=1", "CI="+ci, mysqltest.Env+"=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	const why = "TestWithoutAServerCIFails needs MariaDB or MySQL: `make deps` installs it"
	if out, err := run(""); err != nil || !strings.Contains(out, "--- SKIP") || !strings.Contains(out, why) {
		t.Errorf("without CI: %v, want a skip that says why\n%s", err, out)
	}
	if out, err := run("true"); err == nil || !strings.Contains(out, "--- FAIL") || !strings.Contains(out, why) {
		t.Errorf("under CI: %v, want a failure that says why\n%s", err, out)
	}
}
