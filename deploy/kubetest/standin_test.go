//go:build kubernetes

package kubetest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// A standIn stands in for the kubelets of five nodes in three zones, and for the provisioner of their volumes. It
// runs no container: it marks pods ready, those of `helm test` succeeded, and deletes pods that are to end.
type standIn struct {
	api   *kubernetes.Clientset
	nodes []string

	mu     sync.Mutex
	paused map[string]bool // nodes without kubelet, and images with which the pods of a namespace do not become ready
	beat   time.Time       // of the nodes, last
}

func (k *cluster) standInForKubelets() error {
	k.standIn = &standIn{api: k.Clientset, paused: map[string]bool{}}
	for i := range 5 {
		if err := k.addNode(i); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := k.turn(ctx); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, "kubetest: in the kubelets' place:", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}()
	k.ended = append(k.ended, func() { cancel(); <-done })
	return nil
}

func (s *standIn) addNode(i int) error {
	name := fmt.Sprintf("node-%d", i)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3), "disk": "local",
	}}}
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods: resource.MustParse("110"),
	}
	node.Status.Allocatable = node.Status.Capacity
	if _, err := s.api.CoreV1().Nodes().Create(context.Background(), node, metav1.CreateOptions{}); err != nil {
		return err
	}
	s.nodes = append(s.nodes, name)
	return nil
}

// beatHearts says of each node that it is ready.
func (s *standIn) beatHearts(ctx context.Context) error {
	for _, name := range s.nodes {
		if s.isPaused(name) {
			continue
		}
		status := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":%q}]}}`,
			time.Now().UTC().Format(time.RFC3339))
		if _, err := s.api.CoreV1().Nodes().PatchStatus(ctx, name, []byte(status)); err != nil {
			return err
		}
	}
	s.beat = time.Now()
	return nil
}

// pause takes the kubelet of a node away, or keeps the pods of a namespace and an image from becoming ready.
func (s *standIn) pause(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused[name] = true
}

func (s *standIn) isPaused(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused[name]
}

// turn does what the kubelets and the provisioner have to do now.
func (s *standIn) turn(ctx context.Context) error {
	if time.Since(s.beat) > 2*time.Second {
		if err := s.beatHearts(ctx); err != nil {
			return err
		}
	}
	claims, err := s.api.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, claim := range claims.Items {
		if claim.Spec.VolumeName == "" {
			if err := s.provision(ctx, claim); err != nil {
				return err
			}
		}
	}
	pods, err := s.api.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == "" || s.isPaused(pod.Spec.NodeName) {
			continue
		}
		// What another changed since the list gets its turn with the next.
		if err := s.sync(ctx, pod); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// provision gives a claim a volume, which is on no machine.
func (s *standIn) provision(ctx context.Context, claim corev1.PersistentVolumeClaim) error {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: string(claim.UID)}}
	volume.Spec = corev1.PersistentVolumeSpec{
		Capacity:    claim.Spec.Resources.Requests,
		AccessModes: claim.Spec.AccessModes,
		ClaimRef:    &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
	}
	volume.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/none"}
	if class := claim.Spec.StorageClassName; class != nil {
		volume.Spec.StorageClassName = *class
	}
	_, err := s.api.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // and not yet bound
	}
	return err
}

// sync does what the kubelet of its node would do with a pod.
func (s *standIn) sync(ctx context.Context, pod corev1.Pod) error {
	api := s.api.CoreV1().Pods(pod.Namespace)
	switch {
	case pod.DeletionTimestamp != nil:
		now := int64(0)
		return api.Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
	case pod.Status.Phase == corev1.PodPending:
		pod.Status = running(pod)
	case pod.Status.Phase == corev1.PodRunning && !isReady(pod) &&
		!s.isPaused(pod.Namespace+" "+pod.Spec.Containers[0].Image):
		if pod.Spec.RestartPolicy != corev1.RestartPolicyAlways {
			pod.Status.Phase = corev1.PodSucceeded
			break
		}
		for i := range pod.Status.Conditions {
			pod.Status.Conditions[i].Status = corev1.ConditionTrue
			pod.Status.Conditions[i].LastTransitionTime = metav1.Now()
		}
		for i := range pod.Status.ContainerStatuses {
			pod.Status.ContainerStatuses[i].Ready = true
		}
	default:
		return nil
	}
	_, err := api.UpdateStatus(ctx, &pod, metav1.UpdateOptions{})
	return err
}

// running returns the status of a pod whose containers run and are not ready.
func running(pod corev1.Pod) corev1.PodStatus {
	now := metav1.Now()
	status := corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, PodIP: "192.0.2.2"}
	status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.ContainersReady, Status: corev1.ConditionFalse},
		{Type: corev1.PodReady, Status: corev1.ConditionFalse},
	}
	for _, c := range pod.Spec.Containers {
		started := true
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Started: &started,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return status
}

func isReady(pod corev1.Pod) bool {
	return condition(pod, corev1.PodReady).Status == corev1.ConditionTrue
}

// condition returns a condition of a pod, the zero value if it has none.
func condition(pod corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}
