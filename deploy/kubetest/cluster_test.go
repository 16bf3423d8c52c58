//go:build kubernetes

// Package kubetest applies the chart of natsid to a real Kubernetes, and rolls it: etcd, and the API server,
// controllers and scheduler that its go.mod names. No node runs: the test marks pods ready in the kubelet's place.
package kubetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// patience bounds each wait. It is long: a machine may be busy.
const patience = 5 * time.Minute

// A cluster is a Kubernetes whose nodes are objects alone.
type cluster struct {
	*kubernetes.Clientset
	*standIn
	dir   string // of everything that it writes
	ended []func()
}

// k is the cluster of all tests: each uses a Kubernetes namespace of its own.
var k *cluster

func TestMain(m *testing.M) {
	code, err := runOnCluster(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kubetest:", err)
		code = 1
	}
	os.Exit(code)
}

func runOnCluster(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "natsid-kubetest-")
	if err != nil {
		return 1, err
	}
	k = &cluster{dir: dir}
	defer k.stop()
	begin := time.Now()
	if err := k.build(); err != nil {
		return 1, err
	}
	fmt.Printf("kubetest: compiled in %v\n", time.Since(begin).Round(time.Second))
	if err := k.start(); err != nil {
		return 1, fmt.Errorf("%w\n%s", err, k.logs())
	}
	fmt.Println("kubetest: no kubelet runs: this test marks pods ready in the kubelet's place, and runs none of them")
	if code = m.Run(); code != 0 {
		fmt.Println(k.logs())
	}
	return code, nil
}

func (k *cluster) path(name string) string { return filepath.Join(k.dir, name) }

// build compiles the tools of go.mod, and packs the chart as two versions.
func (k *cluster) build() error {
	version, err := output("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return err
	}
	// Without it the API server takes itself for version 0.0.0, on which the chart cannot be installed.
	const in = " -X k8s.io/component-base/version."
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	flags := "-s -w" + in + "gitVersion=" + version + in + "gitMajor=" + major + in + "gitMinor=" + minor
	if _, err := output("go", "build", "-ldflags", flags, "-o", k.path("bin")+"/", "tool"); err != nil {
		return err
	}
	for _, version := range []string{"0.1.0", "0.1.1"} {
		args := []string{"-C", "../charttest", "run", ".", "-version", version, "-date", "0", "-out", k.chart(version)}
		if _, err := output("go", args...); err != nil {
			return err
		}
	}
	return nil
}

// chart returns the path of the packed chart.
func (k *cluster) chart(version string) string { return k.path("natsid-" + version + ".tgz") }

// output runs a program, without a C compiler, and returns what it prints.
func output(program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", cmd, err, &errs)
	}
	return strings.TrimSpace(string(out)), err
}

// start starts all programs, each once the one that it needs answers, and the stand-in for the kubelets.
func (k *cluster) start() error {
	etcd, client, peer, api := "", port(), port(), port()
	etcd, err := exec.LookPath("etcd")
	if err != nil {
		return fmt.Errorf("%w: `make kube-test` installs it", err)
	}
	peers := "http://127.0.0.1:" + peer
	k.launch(etcd, "--data-dir", k.path("etcd"), "--listen-client-urls", "http://127.0.0.1:"+client,
		"--advertise-client-urls", "http://127.0.0.1:"+client, "--listen-peer-urls", peers,
		"--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers)
	if err := k.credentials(api); err != nil {
		return err
	}
	k.launch(k.path("bin/kube-apiserver"), "--etcd-servers", "http://127.0.0.1:"+client, "--bind-address", "127.0.0.1",
		"--secure-port", api, "--cert-dir", k.path("certs"), "--token-auth-file", k.path("tokens"),
		"--authorization-mode", "Node,RBAC", "--service-cluster-ip-range", "10.96.0.0/16",
		"--advertise-address", "192.0.2.1", "--endpoint-reconciler-type", "none",
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", k.path("key"), "--service-account-signing-key-file", k.path("key"))
	if err := k.connect(); err != nil {
		return err
	}
	config := []string{"--kubeconfig", os.Getenv("KUBECONFIG"), "--leader-elect=false", "--secure-port", "0"}
	k.launch(k.path("bin/kube-controller-manager"), append(config, "--node-monitor-grace-period", "30s",
		"--service-account-private-key-file", k.path("key"))...)
	k.launch(k.path("bin/kube-scheduler"), config...)
	return k.standInForKubelets()
}

// credentials writes the key of service accounts, and the token and kubeconfig of an administrator.
func (k *cluster) credentials(api string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}
	token := rand.Text()
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test}}]
clusters: [{name: test, cluster: {server: 'https://127.0.0.1:%s', certificate-authority: %s}}]
users: [{name: test, user: {token: %s}}]
`, api, k.path("certs/apiserver.crt"), token)
	return errors.Join(
		os.WriteFile(k.path("key"), pem.EncodeToMemory(block), 0o600),
		os.WriteFile(k.path("tokens"), []byte(token+`,test,test,"system:masters"`+"\n"), 0o600),
		os.WriteFile(k.path("kubeconfig"), []byte(config), 0o600),
		os.Setenv("KUBECONFIG", k.path("kubeconfig")),
		os.Setenv("KUBECACHEDIR", k.path("cache")),
		os.Setenv("HELM_CACHE_HOME", k.path("helm")),
		os.Setenv("HELM_CONFIG_HOME", k.path("helm")),
		os.Setenv("HELM_DATA_HOME", k.path("helm")),
		os.Setenv("PATH", k.path("bin")+":"+os.Getenv("PATH")),
	)
}

// connect waits until the API server is ready.
func (k *cluster) connect() error {
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		// Once the API server has written its certificate.
		config, err := clientcmd.BuildConfigFromFlags("", k.path("kubeconfig"))
		if err == nil {
			config.QPS = -1 // no limit
			k.Clientset, err = kubernetes.NewForConfig(config)
		}
		if err == nil {
			_, err = k.RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background())
		}
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// launch starts a program, whose log is a file, until the end of the cluster.
func (k *cluster) launch(program string, args ...string) {
	cmd := exec.Command(program, args...)
	log, err := os.Create(k.path(filepath.Base(program) + ".log"))
	if err == nil {
		cmd.Stdout, cmd.Stderr = log, log
		err = cmd.Start()
	}
	if err != nil {
		panic(err)
	}
	k.ended = append(k.ended, func() {
		_ = cmd.Process.Signal(syscall.SIGKILL) // its data is deleted, too
		_ = cmd.Wait()
		log.Close()
	})
}

// stop ends all programs, the last that was started first.
func (k *cluster) stop() {
	for len(k.ended) > 0 {
		last := len(k.ended) - 1
		k.ended[last]()
		k.ended = k.ended[:last]
	}
	os.RemoveAll(k.dir)
}

// logs returns the end of each log.
func (k *cluster) logs() string {
	var all strings.Builder
	files, _ := filepath.Glob(k.path("*.log"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		lines := strings.Split(string(text), "\n")
		fmt.Fprintf(&all, "== %s\n%s\n", file, strings.Join(lines[max(0, len(lines)-20):], "\n"))
	}
	return all.String()
}

// port returns a port on which nothing listens.
func port() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}
