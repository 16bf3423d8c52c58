//go:build kubernetes

package kubetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	_ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil" // for the folder of its CRDs
)

const values = "--set nats.url=nats://n1:4222"

// Every object is created with strict validation, and no warning, under the Pod Security Standard "restricted". Then
// the chart is installed: controllers make pods, which the scheduler places on nodes of their own.
func TestTheAPIServerTakesEverySetOfValues(t *testing.T) {
	operator := run(t, ".", "go list -m -f '{{.Dir}}' github.com/prometheus-operator/prometheus-operator")
	for _, kind := range []string{"servicemonitors", "prometheusrules"} {
		run(t, strings.TrimSpace(operator)+"/example/prometheus-operator-crd",
			"kubectl apply --server-side -f monitoring.coreos.com_"+kind+".yaml")
	}
	run(t, ".", "kubectl wait --for=condition=Established crd --all")
	sets, err := filepath.Glob("../charttest/sets/*.yaml")
	if err != nil || len(sets) != 4 {
		t.Fatalf("%d sets of values, %v", len(sets), err)
	}
	for _, file := range sets {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, name)
			args := fmt.Sprintf("natsid %s -n %s -f %s", k.chart("0.1.0"), name, file)
			run(t, ".", "helm template --validate "+args+" | kubectl create -n "+name+
				" --dry-run=server --validate=strict --warnings-as-errors -f -")
			run(t, ".", "helm install "+args+" --wait --timeout 10m")
			f.isWhole(t)
		})
	}
}

// The lines of docs/kubernetes.md are typed in as they stand, in a folder with the packed chart.
func TestTheLinesOfThePageInstallWorkers(t *testing.T) {
	page := read(t, "../../docs/kubernetes.md")
	dir := folder(t)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(page, -1)
	for i, name := range []string{"nats.yaml", "natsid.yaml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(blocks[i][1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	lines := regexp.MustCompile("(?m)^(kubectl|helm) .*$").FindAllString(page, -1)
	if len(lines) != 5 {
		t.Errorf("the page has the lines %q", lines)
	}
	for _, line := range lines {
		if strings.Contains(line, "https://") || strings.Contains(line, "nats/nats") {
			typeIfReachable(t, dir, line)
		} else {
			run(t, dir, line)
		}
	}
	f := fleet{"ids"}
	f.rollOut(t)
	f.isWhole(t)
	f.wantImage(t, "ghcr.io/natsid/natsid:0.1.0")
}

// typeIfReachable types a line that needs the chart of NATS, which is on the web.
func typeIfReachable(t *testing.T, dir, line string) {
	t.Helper()
	out, err := shell(dir, line).CombinedOutput()
	switch {
	case err == nil:
		t.Logf("%s\n%s", line, out)
	case os.Getenv("CI") != "":
		t.Errorf("%s: %v\n%s", line, err, out)
	default:
		t.Logf("not typed with success, as the chart of NATS cannot be reached: %s: %v\n%s", line, err, out)
	}
}

func TestTheLineOfREADMEInstallsWorkers(t *testing.T) {
	line := regexp.MustCompile(`(?m)^helm .*$`).FindString(read(t, "../../README.md"))
	run(t, folder(t), line)
	f := fleet{"default"}
	f.rollOut(t)
	f.isWhole(t)
}

// Each worker keeps its volume from one version to the next and back, and after the end of the release.
func TestAnUpgradeAndARollbackReplaceOneWorkerAtATime(t *testing.T) {
	f := newFleet(t, "rolled")
	f.install(t, "0.1.0")
	claims := f.claims(t)
	for _, step := range [][2]string{
		{"helm upgrade natsid " + k.chart("0.1.1") + " --reuse-values", "0.1.1"},
		// At once, so that the last worker of the upgrade is first if it was ready for less than minReadySeconds.
		{"helm rollback natsid", "0.1.0"},
	} {
		before := f.pods(t)
		run(t, ".", step[0]+" -n "+f.namespace)
		f.rollOut(t)
		f.wantImage(t, "ghcr.io/natsid/natsid:"+step[1])
		f.replacedOneByOne(t, before)
		if have := f.claims(t); have != claims {
			t.Errorf("%s: the claims %s became %s", step[0], claims, have)
		}
	}
	run(t, ".", "helm uninstall natsid --wait -n "+f.namespace)
	if have := f.claims(t); have != claims {
		t.Errorf("uninstalled: the claims %s became %s", claims, have)
	}
}

// A version that does not become ready stops one worker. The budget keeps evictions from the others, and a rollback
// needs no help.
func TestWhileOneWorkerIsDownTheOthersStay(t *testing.T) {
	f := newFleet(t, "down")
	f.install(t, "0.1.0")
	before := f.pods(t)
	k.pause(f.namespace + " ghcr.io/natsid/natsid:0.1.1")
	run(t, ".", "helm upgrade natsid "+k.chart("0.1.1")+" --reuse-values -n "+f.namespace)
	await(t, "natsid-2 is replaced and not ready", func() bool {
		pod, has := f.pods(t)["natsid-2"]
		return has && pod.UID != before["natsid-2"].UID && pod.Status.Phase == "Running" && !isReady(pod)
	})
	for _, name := range []string{"natsid-0", "natsid-1"} {
		err := f.evict(t, name)
		if !apierrors.IsTooManyRequests(err) || !strings.Contains(fmt.Sprint(err), "disruption budget") {
			t.Errorf("while natsid-2 is down, the eviction of %s gives %v", name, err)
		}
	}
	stays(t, "the upgrade waits for natsid-2", func() bool {
		now := f.pods(t)
		return now["natsid-0"].UID == before["natsid-0"].UID && now["natsid-1"].UID == before["natsid-1"].UID
	})

	run(t, ".", "helm rollback natsid -n "+f.namespace)
	f.rollOut(t)
	f.isWhole(t)
	f.wantImage(t, "ghcr.io/natsid/natsid:0.1.0")
	if after := f.pods(t); after["natsid-0"].UID != before["natsid-0"].UID {
		t.Error("the rollback replaced natsid-0, which it need not")
	}
	if err := f.evict(t, "natsid-0"); err != nil {
		t.Errorf("with all workers ready, the eviction of one gives %v", err)
	}
	if err := f.evict(t, "natsid-1"); !apierrors.IsTooManyRequests(err) {
		t.Errorf("after the eviction of natsid-0, that of natsid-1 gives %v", err)
	}
}

// As docs/kubernetes.md says of a node that is lost.
func TestThePodOfALostNodeMovesOnceTheNodeIsOutOfService(t *testing.T) {
	f := newFleet(t, "lost")
	f.install(t, "0.1.0")
	was, claims := f.pods(t)["natsid-1"], f.claims(t)
	node := was.Spec.NodeName
	k.pause(node)
	await(t, "the pod of the lost node is not ready", func() bool { return !isReady(f.pods(t)["natsid-1"]) })
	stays(t, "Kubernetes does not replace it", func() bool { return f.pods(t)["natsid-1"].UID == was.UID })

	taint := regexp.MustCompile("node.kubernetes.io/out-of-service").FindString(read(t, "../../docs/kubernetes.md"))
	run(t, ".", "kubectl taint node "+node+" "+taint+"=shutdown:NoExecute")
	await(t, "the pod is ready on another node", func() bool {
		pod, has := f.pods(t)["natsid-1"]
		return has && pod.UID != was.UID && pod.Spec.NodeName != node && isReady(pod)
	})
	if have := f.claims(t); have != claims {
		t.Errorf("the claims %s became %s", claims, have)
	}
}

// folder returns one with the chart under the name that it has in a release.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Symlink(k.chart("0.1.0"), filepath.Join(dir, "natsid-0.1.0.tgz")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func shell(dir, line string) *exec.Cmd {
	cmd := exec.Command("sh", "-ec", line)
	cmd.Dir = dir
	return cmd
}

// run types a line, and returns what it prints.
func run(t *testing.T, dir, line string) string {
	t.Helper()
	out, err := shell(dir, line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
