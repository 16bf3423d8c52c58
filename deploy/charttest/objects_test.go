package main

import (
	"bytes"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	chartDir = "../chart"
	// someURL stands for a NATS that nobody connects to.
	someURL = "nats: {url: 'nats://n1:4222'}\n"
)

// objects are what the chart renders for some values; nil where it renders none.
type objects struct {
	Set     *appsv1.StatefulSet
	Service *corev1.Service // headless
	Leaf    leafObjects
	Budget  *policyv1.PodDisruptionBudget
	Policy  *networkingv1.NetworkPolicy
	Monitor *serviceMonitor
	Rule    *prometheusRule
	Test    *corev1.Pod // of `helm test`
	Notes   string
}

// leafObjects are those of natsid leaf.
type leafObjects struct {
	Deployment *appsv1.Deployment
	Service    *corev1.Service
	Policy     *networkingv1.NetworkPolicy
}

// A serviceMonitor is the part of monitoring.coreos.com/v1 that the chart uses.
type serviceMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port          string `json:"port"`
			Path          string `json:"path"`
			Interval      string `json:"interval"`
			Authorization *struct {
				Credentials corev1.SecretKeySelector `json:"credentials"`
			} `json:"authorization"`
			Relabelings []struct {
				SourceLabels []string `json:"sourceLabels"`
				TargetLabel  string   `json:"targetLabel"`
				Replacement  string   `json:"replacement"`
			} `json:"relabelings"`
		} `json:"endpoints"`
	} `json:"spec"`
}

// A prometheusRule is the part of monitoring.coreos.com/v1 that the chart uses.
type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ruleFile `json:"spec"`
}

// A ruleFile is a file of rules of Prometheus.
type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Record      string            `json:"record"`
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			For         string            `json:"for"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

// render renders the chart, strictly decoded, as release natsid in the Kubernetes namespace ids.
func render(t *testing.T, values string) objects {
	t.Helper()
	o, err := tryRender(loadChart(t), values)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// loadChart returns the chart as it is packed.
func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadArchive(bytes.NewReader(packed(t, chartDir, "")))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tryRender does what `helm template` does, by the parts of Helm that need no client of Kubernetes: with Helm's action
// twice as many packages would be compiled.
func tryRender(c *chart.Chart, values string) (o objects, err error) {
	var given map[string]any
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		return o, err
	}
	const oldest = "v1.30.0"
	if !chartutil.IsCompatibleRange(c.Metadata.KubeVersion, oldest) {
		return o, fmt.Errorf("the chart refuses Kubernetes %s", oldest)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: oldest, Major: "1", Minor: "30"}
	all, err := chartutil.ToRenderValues(c, given,
		chartutil.ReleaseOptions{Name: "natsid", Namespace: "ids", Revision: 1, IsInstall: true}, capabilities)
	if err != nil {
		return o, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return o, err
	}
	var docs []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		switch path.Ext(name) {
		case ".yaml":
			docs = append(docs, regexp.MustCompile(`(?m)^---$`).Split(files[name], -1)...)
		case ".txt":
			o.Notes = files[name]
		}
	}
	for _, doc := range docs {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		if err := o.decode(doc); err != nil {
			return o, fmt.Errorf("%w in\n%s", err, doc)
		}
	}
	return o, nil
}

// decode decodes an object as the API server does where it validates fields strictly.
func (o *objects) decode(doc string) error {
	data, err := yaml.YAMLToJSONStrict([]byte(doc))
	if err != nil {
		return err
	}
	var head struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
	}
	if err := yaml.Unmarshal(data, &head); err != nil {
		return err
	}
	var to any
	switch head.APIVersion + " " + head.Kind {
	case "apps/v1 StatefulSet":
		o.Set = new(appsv1.StatefulSet)
		to = o.Set
	case "apps/v1 Deployment":
		o.Leaf.Deployment = new(appsv1.Deployment)
		to = o.Leaf.Deployment
	case "v1 Service":
		service := new(corev1.Service)
		if to = service; strings.HasSuffix(head.Name, "-leaf") {
			o.Leaf.Service = service
		} else {
			o.Service = service
		}
	case "policy/v1 PodDisruptionBudget":
		o.Budget = new(policyv1.PodDisruptionBudget)
		to = o.Budget
	case "networking.k8s.io/v1 NetworkPolicy":
		policy := new(networkingv1.NetworkPolicy)
		if to = policy; strings.HasSuffix(head.Name, "-leaf") {
			o.Leaf.Policy = policy
		} else {
			o.Policy = policy
		}
	case "monitoring.coreos.com/v1 ServiceMonitor":
		o.Monitor = new(serviceMonitor)
		to = o.Monitor
	case "monitoring.coreos.com/v1 PrometheusRule":
		o.Rule = new(prometheusRule)
		to = o.Rule
	case "v1 Pod":
		o.Test = new(corev1.Pod)
		to = o.Test
	default:
		return fmt.Errorf("an object of %s %s", head.APIVersion, head.Kind)
	}
	unknown, err := json.UnmarshalStrict(data, to)
	if err == nil && len(unknown) > 0 {
		err = unknown[0]
	}
	return err
}

// worker returns the container of a worker.
func (o objects) worker() corev1.Container { return o.Set.Spec.Template.Spec.Containers[0] }

// containers returns those of all pods.
func (o objects) containers() []corev1.Container {
	all := []corev1.Container{o.worker(), o.Test.Spec.Containers[0]}
	if o.Leaf.Deployment != nil {
		all = append(all, o.Leaf.Deployment.Spec.Template.Spec.Containers[0])
	}
	return all
}

// env returns the variables of a container. Those that Kubernetes fills in are those of the first pod.
func env(t *testing.T, c corev1.Container) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, v := range c.Env {
		if _, twice := all[v.Name]; twice {
			t.Errorf("the container %s has %s twice", c.Name, v.Name)
		}
		all[v.Name] = v.Value
		if from := v.ValueFrom; from != nil {
			if from.FieldRef == nil || from.FieldRef.FieldPath != "metadata.name" {
				t.Fatalf("%s comes from %v, which this test does not know", v.Name, from)
			}
			all[v.Name] = "natsid-0"
		}
	}
	return all
}
