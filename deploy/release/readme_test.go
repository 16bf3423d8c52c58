package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// README's first screen shows one line for each way to install natsid. Each is typed in as it stands, with the version
// and the architecture of the release that these tests build. deploy/kubetest types helm's.
func lineOfREADME(t *testing.T, program string) string {
	t.Helper()
	block := regexp.MustCompile("(?s)\nOnce 0.1.0 is released.*?```\n(.*?)```\n").FindStringSubmatch(
		string(got(os.ReadFile("../../README.md"))))
	if block == nil {
		t.Fatal("README has no lines that install a release")
	}
	lines := strings.Split(strings.TrimSpace(block[1]), "\n")
	if len(lines) != 4 {
		t.Errorf("README has %d lines that install a release, and tests type 4 of them", len(lines))
	}
	for _, line := range lines {
		if strings.HasPrefix(strings.TrimPrefix(line, "sudo "), program+" ") {
			number := strings.TrimPrefix(testVersion, "v")
			return strings.NewReplacer("0.1.0", number, "amd64", runtime.GOARCH).Replace(line)
		}
	}
	t.Fatalf("README has no line that installs a release with %s", program)
	return ""
}

func TestTheLineOfAptInstallsThePackage(t *testing.T) {
	root := system(t)
	deb := filepath.Base(debOf(built()))
	must(os.WriteFile(filepath.Join(root, deb), got(os.ReadFile(debOf(built()))), 0o644))
	// Root may have no sudo. No systemd runs in a changed root: systemctl enables the unit, and the test starts it.
	for name, script := range map[string]string{
		"sudo":      `exec "$@"`,
		"systemctl": `test "$*" != "enable --now natsid" || exec /usr/bin/systemctl enable natsid`,
	} {
		must(os.WriteFile(filepath.Join(root, "usr/local/bin", name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	line := lineOfREADME(t, "apt")
	t.Logf("%s\n%s", line, in(t, root, "sh", "-ec", line))
	if said := in(t, root, "sh", "-c", "natsid --version"); !strings.HasPrefix(said, "natsid "+built().number()+" ") {
		t.Errorf("installed is %q", said)
	}
	unit := got(os.Readlink(filepath.Join(root, "etc/systemd/system/multi-user.target.wants/natsid.service")))
	if !strings.HasSuffix(unit, "/lib/systemd/system/natsid.service") {
		t.Errorf("enabled is %s", unit)
	}
	port := freePort(t)
	w := start(t, port, asUnit(t, root, "NATSID_LISTEN=127.0.0.1:"+port, "NATSID_HTTP=127.0.0.1:0"))
	w.get(t, 0)
	w.stop(t)
}

// Docker loads the image and runs it as a worker on n1, which is this machine.
func TestTheLineOfDockerRunsTheImage(t *testing.T) {
	on(t, "linux")
	if out, err := exec.Command("docker", "version").CombinedOutput(); err != nil {
		t.Skipf("needs docker and its daemon: %v\n%s", err, out)
	}
	port := freePort(t)
	n1 := start(t, port, exec.Command(binaryOf(t, built()), "--listen", "127.0.0.1:"+port, "--http", "127.0.0.1:0",
		"--data", t.TempDir()))
	line := strings.ReplaceAll(lineOfREADME(t, "docker"), "n1:4222", "n1:"+port)
	name := "natsid-" + port
	cmd := exec.Command("sh", "-ec", `docker() {
	if [ "$1" = run ]; then
		shift
		set -- run --rm --network host --add-host n1:127.0.0.1 -e NATSID_HTTP=127.0.0.1:0 --name `+name+` "$@"
	fi
	command docker "$@"
}
`+line)
	cmd.Dir = built().out
	launch(t, cmd, "natsid is ready on nats://n1:"+port)
	if err := errors.Join(exec.Command("docker", "stop", name).Run(), cmd.Wait()); err != nil {
		t.Errorf("docker stop: %v", err)
	}
	n1.stop(t)
}
