package main

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/nats-io/nats.go"

	"github.com/natsid/natsid/internal/testkit/freeport"
)

// freePort returns a port that no program uses.
func freePort(t *testing.T) string {
	t.Helper()
	_, port, _ := net.SplitHostPort(got(freeport.Get()))
	return port
}

// asRoot skips a test of other users and folders as root.
func asRoot(t *testing.T) {
	t.Helper()
	if on(t, "linux"); os.Geteuid() != 0 {
		t.Skip("needs root, for chroot and another user")
	}
}

// A worker is a natsid with an embedded server.
type runningWorker struct {
	*exec.Cmd
	ids *nats.Conn
}

// start starts a command that is a worker which listens on the port, and waits until it is ready.
func start(t *testing.T, port string, cmd *exec.Cmd) runningWorker {
	t.Helper()
	launch(t, cmd, "natsid is ready on nats://127.0.0.1:"+port)
	ids, err := nats.Connect("nats://127.0.0.1:" + port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ids.Close)
	return runningWorker{cmd, ids}
}

// launch starts a command, and waits until it prints a line with a beginning.
func launch(t *testing.T, cmd *exec.Cmd, beginning string) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if said = append(said, lines.Text()); strings.HasPrefix(lines.Text(), beginning) {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return
		}
	}
	_ = cmd.Wait()
	t.Fatalf("%s: ended without %q: %q\n%s", cmd, beginning, said, &log)
}

// get returns an ID, which must be above another, but not beyond the range. If an answer is late, it is not the next.
func (w runningWorker) get(t *testing.T, above int) (id int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		m, err := w.ids.Request("id.segment.order", nil, 2*time.Second)
		if err == nil && len(m.Data) > 0 {
			if id, err = strconv.Atoi(string(m.Data)); err != nil || id <= above || id > above+1000 {
				t.Errorf("ID %s, %v, want one from %d on", m.Data, err, above+1)
			}
			return id
		}
		if time.Now().After(end) {
			t.Fatalf("no ID: %v, %+v", err, m)
		}
	}
}

// stop sends SIGTERM, and expects a clean end.
func (w runningWorker) stop(t *testing.T) {
	t.Helper()
	w.ids.Close()
	if err := errors.Join(w.Process.Signal(syscall.SIGTERM), w.Wait()); err != nil {
		t.Errorf("stopped by SIGTERM: %v", err)
	}
}

// pulled pushes the image to a registry in this process, pulls it by its digest, and returns that of this machine.
func pulled(t *testing.T, r *release) v1.Image {
	t.Helper()
	dir := t.TempDir()
	run(t, "tar", "-xf", filepath.Join(r.out, r.stem("image.tar")), "-C", dir)
	store, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	index := got(store.ImageIndex(got(store.IndexManifest()).Manifests[0].Digest))
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	repo := strings.TrimPrefix(server.URL, "http://") + "/natsid"
	must(remote.WriteIndex(got(name.NewTag(repo+":"+r.number())), index))
	digest := got(index.Digest())
	back := got(remote.Index(got(name.NewDigest(repo + "@" + digest.String()))))
	if have := got(back.Digest()); have != digest {
		t.Fatalf("pulled %v, pushed %v", have, digest)
	}
	m := got(back.IndexManifest())
	if m.Annotations["org.opencontainers.image.version"] != r.number() || len(m.Manifests) != len(r.targets) {
		t.Errorf("%+v", m)
	}
	t.Logf("index %v", digest)
	return got(back.Image(m.Manifests[0].Digest))
}

// The worker runs as in a container with a read-only root: changed root, user 65532, nothing of this machine but its
// network. It has no limits, PID namespace or seccomp.
func TestTheImageRunsAsAnOrdinaryUserOnAReadOnlyRoot(t *testing.T) {
	asRoot(t)
	img := pulled(t, built())
	root, size := unpacked(t, img)
	if const45 := int64(45 << 20); size > const45 {
		t.Errorf("%d bytes unpacked, want at most %d", size, const45)
	}
	t.Logf("%d bytes unpacked", size)
	config := got(img.ConfigFile()).Config
	if config.User != "65532:65532" || config.Labels["org.opencontainers.image.revision"] != built().commit {
		t.Errorf("%+v", config)
	}
	port := freePort(t)
	in := func(args string) *exec.Cmd {
		// A read-only bind mount of the root with the volume in it, seen by this process alone.
		script := `set -e; cd "$1"; mount --bind . . && cd . && cd "$1" && mount --bind data data && ` +
			`mount -o remount,bind,ro "$1"; ! touch "$1/x" 2>/dev/null; exec chroot --userspec=65532:65532 "$1" ` +
			config.Entrypoint[0] + " " + args
		cmd := exec.Command("sh", "-c", script, "sh", root)
		cmd.Env = append(config.Env, "NATSID_LISTEN=127.0.0.1:"+port, "NATSID_HTTP=127.0.0.1:0")
		cmd.Env[0] += ":" + os.Getenv("PATH") // for sh; of it, the image has /usr/local/bin alone
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		return cmd
	}
	out, err := in("--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "natsid "+built().number()) {
		t.Fatalf("natsid --version: %v\n%s", err, out)
	}
	w := start(t, port, in(""))
	status := string(got(os.ReadFile(fmt.Sprintf("/proc/%d/status", w.Process.Pid))))
	if !strings.Contains(status, "\nUid:\t65532\t65532\t") {
		t.Errorf("the worker runs as another user:\n%s", status)
	}
	mounts := string(got(os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", w.Process.Pid))))
	if !regexp.MustCompile(`(?m) / ro,`).MatchString(mounts) {
		t.Errorf("the root can be written:\n%s", mounts)
	}
	w.get(t, 0)
	w.stop(t)
}

// unpacked writes the files of an image into a folder. It makes no folder that the image does not have.
func unpacked(t *testing.T, img v1.Image) (root string, size int64) {
	t.Helper()
	root = got(os.MkdirTemp(testDir, "image-"))
	must(os.Chmod(root, 0o755))
	files := mutate.Extract(img)
	defer files.Close()
	for in := tar.NewReader(files); ; {
		h, err := in.Next()
		if err == io.EOF {
			return root, size
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, h.Name)
		if h.Typeflag == tar.TypeDir {
			must(os.Mkdir(path, 0o755))
		} else {
			must(os.WriteFile(path, got(io.ReadAll(in)), 0o644))
		}
		must(os.Chmod(path, h.FileInfo().Mode()))
		must(os.Chown(path, h.Uid, h.Gid))
		size += h.Size
	}
}

func TestTheChartHasTheVersionOfTheRelease(t *testing.T) {
	on(t, "linux")
	chart := filepath.Join(built().out, "natsid-"+built().number()+".tgz")
	text := run(t, "tar", "-xzOf", chart, "natsid/Chart.yaml")
	for _, line := range []string{"version", "appVersion"} {
		if !strings.Contains(text, "\n"+line+": \""+built().number()+"\"\n") {
			t.Errorf("the chart's %s is another:\n%s", line, text)
		}
	}
	packed := len(strings.Fields(run(t, "tar", "-tzf", chart)))
	if want := len(below("../../deploy/chart", "../../deploy/chart")); packed != want {
		t.Errorf("the chart has %d files, deploy/chart %d", packed, want)
	}
}

// debOf returns the path of a deb.
func debOf(r *release) string {
	return filepath.Join(r.out, r.stem(r.targets[0].name())+".deb")
}

// A copy of this machine's system in which packages can be installed: writes go to a folder of the test.
func system(t *testing.T) (root string) {
	t.Helper()
	asRoot(t)
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("needs dpkg")
	}
	dir := filepath.Join(testDir, t.Name())
	root = filepath.Join(dir, "root")
	for _, d := range []string{"root", "upper", "work"} {
		must(os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	layers := fmt.Sprintf("lowerdir=/,upperdir=%s/upper,workdir=%s/work", dir, dir)
	if err := syscall.Mount("overlay", root, "overlay", 0, layers); err != nil {
		t.Skipf("needs an overlay mount, which this machine refuses: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(root, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return root
}

// in runs a program in a system.
func in(t *testing.T, root, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Path = got(exec.LookPath(program))
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
	return string(out)
}

func dpkg(t *testing.T, root string, args ...string) string {
	t.Helper()
	return in(t, root, "dpkg", append([]string{"--force-unsafe-io", "--no-triggers"}, args...)...)
}

func install(t *testing.T, root string, r *release) string {
	t.Helper()
	must(os.WriteFile(filepath.Join(root, "natsid.deb"), got(os.ReadFile(debOf(r))), 0o644))
	return dpkg(t, root, "-i", "/natsid.deb")
}

// successor returns a release with the deb of a later version, and the same binary.
func successor(t *testing.T, r *release) *release {
	t.Helper()
	next := *r
	next.version, next.out = "v0.98.8", t.TempDir()
	next.packages(next.targets[0], binaryOf(t, r), next.texts())
	return &next
}

func TestAPackageIsInstalledUpgradedRemovedAndPurged(t *testing.T) {
	root := system(t)
	first := built()
	want := func(what, text string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("%s says %q, want %q", what, text, w)
			}
		}
	}
	settings, data := filepath.Join(root, "etc/natsid/natsid.yaml"), filepath.Join(root, "var/lib/natsid")

	want("an installation without systemd", install(t, root, first),
		"not started yet", "/etc/natsid/natsid.yaml", "runuser -u natsid -- natsid --config")
	want("the user", in(t, root, "getent", "passwd", "natsid"), ":/var/lib/natsid:/usr/sbin/nologin")
	if info := got(os.Stat(data)); info.Mode().Perm() != 0o700 || info.Sys().(*syscall.Stat_t).Uid == 0 {
		t.Errorf("%s: %v, %+v", data, info.Mode(), info.Sys())
	}
	port := freePort(t)
	mine := string(got(os.ReadFile(settings))) + "listen: 127.0.0.1:" + port + "\nhttp: 127.0.0.1:0\n"
	must(os.WriteFile(settings, []byte(mine), 0o644))
	worker := func() runningWorker { return start(t, port, asUnit(t, root)) }
	w := worker()
	given := w.get(t, 0)

	want("an upgrade", install(t, root, successor(t, first)), "still of the version before", "one at a time")
	w.get(t, given) // an upgrade stops no worker
	w.stop(t)
	if text := string(got(os.ReadFile(settings))); text != mine {
		t.Error("an upgrade changed the settings")
	}
	w = worker()
	w.get(t, 1000)
	w.stop(t)

	before := run(t, "find", data)
	dpkg(t, root, "-r", "natsid")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/natsid")); !os.IsNotExist(err) {
		t.Errorf("after the removal: %v", err)
	}
	want("the settings after the removal", string(got(os.ReadFile(settings))), mine)
	want("a purge", dpkg(t, root, "-P", "natsid"), "deleted /etc/natsid/natsid.yaml", "Kept /var/lib/natsid")
	if _, err := os.Stat(settings); !os.IsNotExist(err) {
		t.Errorf("after the purge: %v", err)
	}
	if after := run(t, "find", data); after != before {
		t.Errorf("removal and purge changed the data from\n%s\nto\n%s", before, after)
	}
}

// rpm on a system of Debian takes the package as Fedora's does, but for the names of what it depends on.
func TestAnRPMIsInstalledUpgradedAndRemoved(t *testing.T) {
	root := system(t)
	if _, err := exec.LookPath("rpm"); err != nil {
		t.Skip("needs rpm")
	}
	rpm := func(r *release, want string, args ...string) {
		t.Helper()
		name := r.stem(r.targets[0].name()) + ".rpm"
		must(os.WriteFile(filepath.Join(root, "natsid.rpm"), got(os.ReadFile(filepath.Join(r.out, name))), 0o644))
		args = append([]string{"--force-debian", "--nodeps"}, args...)
		if said := in(t, root, "rpm", args...); !strings.Contains(said, want) {
			t.Errorf("rpm %q says %q, want %q", args, said, want)
		}
	}
	settings, data := filepath.Join(root, "etc/natsid/natsid.yaml"), filepath.Join(root, "var/lib/natsid/kept")
	rpm(built(), "natsid: not started yet", "-i", "/natsid.rpm")
	if said := in(t, root, "sh", "-c", "natsid --version"); !strings.HasPrefix(said, "natsid "+built().number()+" ") {
		t.Errorf("installed is %q", said)
	}
	must(os.WriteFile(settings, []byte("name: mine\n"), 0o644))
	must(os.WriteFile(data, nil, 0o600))
	rpm(successor(t, built()), "still of the version before", "-U", "/natsid.rpm")
	if text := string(got(os.ReadFile(settings))); text != "name: mine\n" {
		t.Errorf("an upgrade changed the settings to %q", text)
	}
	rpm(built(), "", "-e", "natsid")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/natsid")); !os.IsNotExist(err) {
		t.Errorf("after the removal: %v", err)
	}
	for _, kept := range []string{data, settings + ".rpmsave"} {
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("after the removal: %v", err)
		}
	}
}

// A systemctl in place of systemd's writes down how the package calls it.
func TestAPackageStopsWorkersWhenItIsRemovedAndNotBefore(t *testing.T) {
	root := system(t)
	calls := filepath.Join(root, "calls")
	must(os.MkdirAll(filepath.Join(root, "run/systemd/system"), 0o755))
	must(os.Remove(filepath.Join(root, "usr/bin/systemctl")))
	must(os.WriteFile(filepath.Join(root, "usr/bin/systemctl"), []byte("#!/bin/sh\necho \"$@\" >>/calls\n"), 0o755))
	if said := install(t, root, built()); !strings.Contains(said, "To start it: systemctl enable --now natsid\n") {
		t.Errorf("an installation says %q", said)
	}
	said := install(t, root, successor(t, built()))
	if !strings.Contains(said, "one at a time: systemctl restart natsid\n") {
		t.Errorf("an upgrade says %q", said)
	}
	have := string(got(os.ReadFile(calls)))
	if strings.ReplaceAll(have, "daemon-reload\n", "") != "" {
		t.Errorf("an installation and an upgrade called systemctl with %q", have)
	}
	must(os.Remove(calls))
	dpkg(t, root, "-r", "natsid")
	want := "stop natsid.service natsid@*.service\ndisable natsid.service\ndaemon-reload\n"
	if have := string(got(os.ReadFile(calls))); have != want {
		t.Errorf("a removal called systemctl with %q, want %q", have, want)
	}
}

// asUnit returns the command of the installed unit, as its user, with additions to its environment.
func asUnit(t *testing.T, root string, env ...string) *exec.Cmd {
	t.Helper()
	unit := string(got(os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/natsid.service"))))
	exe := regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(unit)
	user := regexp.MustCompile(`(?m)^User=(.*)$`).FindStringSubmatch(unit)
	line := strings.Fields(strings.ReplaceAll(exe[1], "%S", "/var/lib"))
	cmd := exec.Command("chroot", append([]string{"--userspec=" + user[1] + ":" + user[1], root}, line...)...)
	cmd.Env = append(env, "PATH=/usr/bin")
	return cmd
}

func TestThePackageHasWhatItPromises(t *testing.T) {
	on(t, "linux")
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("needs dpkg-deb")
	}
	fields := run(t, "dpkg-deb", "-f", debOf(built()), "Package", "Version", "Depends")
	if want := "Package: natsid\nVersion: 0.98.7~rc1\nDepends: passwd\n"; fields != want {
		t.Errorf("%q, want %q", fields, want)
	}
	files := run(t, "dpkg-deb", "-c", debOf(built()))
	for _, f := range installed {
		if has := strings.Contains(files, " ."+f.to+"\n"); has != (f.only != "rpm") {
			t.Errorf("%s in the deb: %v\n%s", f.to, has, files)
		}
	}
	if strings.Contains(files, "/var/") || strings.Contains(files, "__") {
		t.Errorf("the deb owns data:\n%s", files)
	}
}

func TestLintianFindsNoErrorInThePackage(t *testing.T) {
	on(t, "linux")
	if _, err := exec.LookPath("lintian"); err != nil {
		t.Skip("needs lintian")
	}
	out, err := exec.Command("lintian", "--allow-root", "--fail-on", "error", debOf(built())).CombinedOutput()
	t.Logf("%s", out)
	overrides := regexp.MustCompile(`(?m)^[^#].*$`).FindAllString(built().texts()["package/lintian-overrides"], -1)
	if err != nil || len(overrides) != 1 {
		t.Errorf("%v, overrides %q, want one", err, overrides)
	}
}

func TestTheUnitsAreValidAndConfined(t *testing.T) {
	on(t, "linux")
	for _, program := range []string{"systemd-analyze", "dpkg-deb"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s", program)
		}
	}
	root := t.TempDir()
	run(t, "dpkg-deb", "-x", debOf(built()), root)
	// The units that natsid's name.
	run(t, "sh", "-c", "cp /usr/lib/systemd/system/*.target "+root+"/usr/lib/systemd/system/")
	for _, unit := range []string{"natsid.service", "natsid@eu-1.service"} {
		if out := run(t, "systemd-analyze", "verify", "--man=no", "--root="+root, unit); out != "" {
			t.Errorf("verify %s: %s", unit, out)
		}
	}
	for _, unit := range []string{"natsid.service", "natsid@.service"} {
		file := filepath.Join(root, "usr/lib/systemd/system", unit)
		out, err := exec.Command("systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=15",
			file).CombinedOutput()
		if err != nil {
			t.Errorf("security %s: %v\n%s", unit, err, out)
		}
		t.Logf("%s", regexp.MustCompile(`(?m)^.*Overall.*$`).Find(out))
	}
}

// Both units are one text: what differs is the name of the worker.
func TestSeveralWorkersOnAHostAreConfinedAsOneIs(t *testing.T) {
	one := string(got(os.ReadFile("../../deploy/systemd/natsid.service")))
	many := string(got(os.ReadFile("../../deploy/systemd/natsid@.service")))
	for _, of := range []struct{ one, many string }{
		{"Description=natsid,", "Description=natsid %i,"}, {"/etc/natsid/natsid.yaml", "/etc/natsid/%i.yaml"},
		{"--data %S/natsid\n", "--data %S/natsid/%i\n"}, {"StateDirectory=natsid\n", "StateDirectory=natsid/%i\n"},
	} {
		if strings.Count(one, of.one) != 1 {
			t.Errorf("natsid.service has %q %d times", of.one, strings.Count(one, of.one))
		}
		one = strings.Replace(one, of.one, of.many, 1)
	}
	_, one, _ = strings.Cut(one, "\n")
	if _, many, _ = strings.Cut(many, "\n"); one != many {
		t.Errorf("the units differ: natsid.service is, as natsid@.service,\n%s", one)
	}
}

// A stop that systemd cuts short would leave the worker number blocked.
func TestTheUnitLeavesTimeToStop(t *testing.T) {
	unit := string(got(os.ReadFile("../../deploy/systemd/natsid.service")))
	limit := regexp.MustCompile(`(?m)^TimeoutStopSec=(\d+)$`).FindStringSubmatch(unit)
	compose := regexp.MustCompile(`(?s)image: natsid\n.*?stop_grace_period: (\d+)s`).FindStringSubmatch(
		string(got(os.ReadFile("../../docker-compose.yml"))))
	var seconds, grace int
	got(fmt.Sscan(limit[1], &seconds))
	got(fmt.Sscan(compose[1], &grace))
	if seconds <= grace {
		t.Errorf("the unit leaves %d s to stop, docker-compose.yml %d", seconds, grace)
	}
}

// Every variable of the drop-in is one that natsid reads.
func TestTheCredentialsAreSettings(t *testing.T) {
	help := natsid("serve", "--help") + natsid("help", "connection")
	dropIn := string(got(os.ReadFile("../../deploy/systemd/credentials.conf")))
	pairs := regexp.MustCompile(`(?m)^#LoadCredential=(\S+):/etc/natsid/\S+\n#Environment=(\w+)=%d/(\S+)$`)
	all := pairs.FindAllStringSubmatch(dropIn, -1)
	if len(all) < 3 {
		t.Errorf("%d pairs", len(all))
	}
	for _, m := range all {
		if m[1] != m[3] || !strings.Contains(help, "$"+m[2]) {
			t.Errorf("%q: another file, or no setting", m[0])
		}
	}
}
