//go:build kubernetes

package kubetest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// minReady is the chart's minReadySeconds.
const minReady = 10 * time.Second

var workers = metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=worker"}

// A fleet is the release natsid in a Kubernetes namespace.
type fleet struct{ namespace string }

// newFleet makes a namespace that refuses pods with privileges, and the service account natsid.
func newFleet(t *testing.T, name string) fleet {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted",
	}}}
	if _, err := k.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	run(t, ".", "kubectl create serviceaccount natsid -n "+name)
	return fleet{name}
}

func (f fleet) install(t *testing.T, version string) {
	t.Helper()
	run(t, ".", fmt.Sprintf("helm install natsid %s %s -n %s", k.chart(version), values, f.namespace))
	f.rollOut(t)
	f.isWhole(t)
	// docs/kubernetes.md: workers that are ready for less than minReadySeconds would be replaced at once.
	run(t, ".", "kubectl wait statefulset/natsid --timeout 5m --for jsonpath={.status.availableReplicas}=3 -n "+
		f.namespace)
}

// rollOut waits for the end of an installation, upgrade or rollback.
func (f fleet) rollOut(t *testing.T) {
	t.Helper()
	run(t, ".", fmt.Sprintf("kubectl rollout status statefulset/natsid --timeout %v -n %s", patience, f.namespace))
}

// pods returns the workers by name.
func (f fleet) pods(t *testing.T) map[string]corev1.Pod {
	t.Helper()
	list, err := k.CoreV1().Pods(f.namespace).List(t.Context(), workers)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]corev1.Pod{}
	for _, pod := range list.Items {
		all[pod.Name] = pod
	}
	return all
}

// claims returns which volume each claim has.
func (f fleet) claims(t *testing.T) string {
	t.Helper()
	list, err := k.CoreV1().PersistentVolumeClaims(f.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, claim := range list.Items {
		all = append(all, fmt.Sprintf("%s: %s %s", claim.Name, claim.Spec.VolumeName, claim.Status.Phase))
	}
	return strings.Join(slices.Sorted(slices.Values(all)), ", ")
}

func (f fleet) wantImage(t *testing.T, want string) {
	t.Helper()
	for name, pod := range f.pods(t) {
		if have := pod.Spec.Containers[0].Image; have != want {
			t.Errorf("%s runs %s, want %s", name, have, want)
		}
	}
}

func (f fleet) evict(t *testing.T, pod string) error {
	t.Helper()
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: f.namespace}}
	return k.PolicyV1().Evictions(f.namespace).Evict(t.Context(), eviction)
}

// isWhole checks what the controllers and the scheduler made of a fleet: each worker is ready, on a node and with a
// volume of its own; the budget counts the workers; each Service leads to all.
func (f fleet) isWhole(t *testing.T) {
	t.Helper()
	set, err := k.AppsV1().StatefulSets(f.namespace).Get(t.Context(), "natsid", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := int(*set.Spec.Replicas)
	nodes, volumes := map[string]bool{}, map[string]bool{}
	for _, pod := range f.pods(t) {
		if isReady(pod) {
			nodes[pod.Spec.NodeName] = true
			volumes[pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName] = true
		}
	}
	if len(nodes) != want || len(volumes) != want {
		t.Errorf("%d workers are ready on the nodes %v with the claims %v", want, slices.Sorted(maps.Keys(nodes)),
			slices.Sorted(maps.Keys(volumes)))
	}
	f.budgetCounts(t, want)
	f.servicesLeadTo(t, want)
}

func (f fleet) budgetCounts(t *testing.T, want int) {
	t.Helper()
	budget, err := k.PolicyV1().PodDisruptionBudgets(f.namespace).Get(t.Context(), "natsid", metav1.GetOptions{})
	if apierrors.IsNotFound(err) && want == 1 {
		return // one worker, by choice without
	}
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the budget counts all workers", func() bool {
		budget, err = k.PolicyV1().PodDisruptionBudgets(f.namespace).Get(t.Context(), "natsid", metav1.GetOptions{})
		return err == nil && int(budget.Status.ExpectedPods) == want &&
			int(budget.Status.DisruptionsAllowed) == budget.Spec.MaxUnavailable.IntValue()
	})
}

func (f fleet) servicesLeadTo(t *testing.T, want int) {
	t.Helper()
	services, err := k.CoreV1().Services(f.namespace).List(t.Context(), metav1.ListOptions{
		LabelSelector: "app.kubernetes.io/name=natsid",
	})
	if err != nil || len(services.Items) == 0 {
		t.Fatalf("services: %v, %v", services, err)
	}
	for _, service := range services.Items {
		await(t, "the Service "+service.Name+" leads to all workers", func() bool {
			slices, err := k.DiscoveryV1().EndpointSlices(f.namespace).List(t.Context(), metav1.ListOptions{
				LabelSelector: "kubernetes.io/service-name=" + service.Name,
			})
			ready := 0
			for _, slice := range slices.Items {
				for _, endpoint := range slice.Endpoints {
					if *endpoint.Conditions.Ready {
						ready++
					}
				}
			}
			return err == nil && ready == want
		})
	}
}

// replacedOneByOne checks that each worker was replaced, and was ready for minReady before the next.
func (f fleet) replacedOneByOne(t *testing.T, before map[string]corev1.Pod) {
	t.Helper()
	var ready []time.Time
	for name, pod := range f.pods(t) {
		if pod.UID == before[name].UID {
			t.Errorf("%s was not replaced", name)
		}
		ready = append(ready, condition(pod, corev1.PodReady).LastTransitionTime.Time)
	}
	slices.SortFunc(ready, time.Time.Compare)
	for i := range ready[1:] {
		if apart := ready[i+1].Sub(ready[i]); apart < minReady {
			t.Errorf("two workers became ready within %v, want %v between them", apart, minReady)
		}
	}
}

// await waits until something is so.
func await(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !isSo(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not so after %v: %s", patience, what)
		}
	}
}

// stays checks that something is so for longer than controllers take to act.
func stays(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if !isSo() {
			t.Fatalf("no more: %s", what)
		}
	}
}
