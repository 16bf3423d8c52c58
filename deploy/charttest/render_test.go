package main

import (
	"fmt"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// sets are four sets of values, files in the folder sets, and what each adds to the laws of every set.
var sets = map[string]func(t *testing.T, o objects){
	"url-alone": func(t *testing.T, o objects) {
		if o.Leaf != (leafObjects{}) || o.Policy != nil || o.Monitor != nil || o.Rule != nil || o.Budget == nil {
			t.Errorf("objects beyond the default: %+v", o)
		}
		if n := *o.Set.Spec.Replicas; n != 3 {
			t.Errorf("%d workers, want 3", n)
		}
	},
	"credentials-and-tls": func(t *testing.T, o objects) {
		wantEnv(t, o.worker(), "NATS_CREDS", "/etc/natsid/nats/creds")
		wantFile(t, o.Set.Spec.Template.Spec, "nats/tls.key", "client-tls", "tls.key")
		caller := o.Test.Spec.Containers[0]
		wantEnv(t, caller, "NATS_CREDS", "")
		wantEnv(t, caller, "NATSID_INBOX_PREFIX", "_INBOX_shop")
		wantFile(t, o.Test.Spec, "nats/nkey", "caller", "nk")
		if got := strings.Join(caller.Args, " "); got != "get segment order" {
			t.Errorf("the test runs natsid %s", got)
		}
		if want := "r.example.com/natsid@sha256:0a0a"; !strings.HasPrefix(o.worker().Image, want) {
			t.Errorf("image %s", o.worker().Image)
		}
	},
	"leaf-behind-policy": func(t *testing.T, o objects) {
		wantEnv(t, o.worker(), "NATSID_MAX_STEP", "1099511627776")
		wantEnv(t, o.Test.Spec.Containers[0], "NATSID_NAMESPACE", "shop")
		wantFile(t, o.Set.Spec.Template.Spec, "mysql/dsn", "leaf", "dsn")
		if got := ports(o.Policy.Spec.Egress); got != "53 53 443 3307" {
			t.Errorf("workers may reach the ports %s", got)
		}
		if in := o.Policy.Spec.Ingress; len(in) != 0 {
			t.Errorf("workers let in %+v", in)
		}
		isLeafGateway(t, o)
	},
	"strictly-apart": func(t *testing.T, o objects) {
		pod := o.Set.Spec.Template.Spec
		if len(pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) != 1 ||
			pod.TopologySpreadConstraints[0].WhenUnsatisfiable != corev1.DoNotSchedule {
			t.Errorf("affinity %+v, spread %+v", pod.Affinity, pod.TopologySpreadConstraints)
		}
		claim := o.Set.Spec.VolumeClaimTemplates[0].Spec
		if *claim.StorageClassName != "local" || claim.AccessModes[0] != corev1.ReadWriteOncePod ||
			o.Budget.Spec.MaxUnavailable.IntValue() != 2 {
			t.Errorf("claim %+v, budget %+v", claim, o.Budget.Spec)
		}
		scrape := o.Monitor.Spec.Endpoints[0]
		if c := scrape.Authorization; c == nil || c.Credentials.Name != "page" || c.Credentials.Key != "token" {
			t.Errorf("scraped with %+v, want the token of the page", c)
		}
		if r := scrape.Relabelings[0]; r.TargetLabel != "job" || r.Replacement != "natsid" {
			t.Errorf("the job is %+v, want natsid, which the rules look for", r)
		}
	},
}

// isLeafGateway checks natsid leaf of the set leaf-behind-policy.
func isLeafGateway(t *testing.T, o objects) {
	t.Helper()
	pods, service, policy := o.Leaf.Deployment.Spec, o.Leaf.Service.Spec, o.Leaf.Policy.Spec
	pod := pods.Template.Spec
	hasNoPrivileges(t, pod)
	findsItsFiles(t, pod)
	wantFile(t, pod, "nats/creds", "caller", "nats.creds")
	wantEnv(t, pod.Containers[0], "NATSID_LAYOUT", "js53")
	for name, selector := range map[string]map[string]string{
		"Deployment": pods.Selector.MatchLabels, "Service": service.Selector, "policy": policy.PodSelector.MatchLabels,
	} {
		s := labels.SelectorFromSet(selector)
		if !s.Matches(labels.Set(pods.Template.Labels)) || selects(o, selector) ||
			s.Matches(labels.Set(o.Test.Labels)) {
			t.Errorf("%s selects %v, which is not natsid leaf alone", name, selector)
		}
	}
	if c := pod.Containers[0]; strings.Join(c.Args, " ") != "leaf --listen :8091" ||
		c.Ports[0].ContainerPort != 8091 || c.Ports[0].Name != "leaf" || service.Ports[0].Port != 8091 {
		t.Errorf("natsid %v on port %v, Service %+v", c.Args, c.Ports, service)
	}
	in := policy.Ingress
	if len(in) != 1 || in[0].Ports[0].Port.String() != "leaf" ||
		in[0].From[0].NamespaceSelector.MatchLabels["team"] != "shop" {
		t.Errorf("it lets in %+v", in)
	}
	if got := ports(policy.Egress); got != "53 53 443" {
		t.Errorf("it may reach the ports %s", got)
	}
	if stop := pod.Containers[0].Lifecycle; stop == nil || stop.PreStop.Sleep == nil {
		t.Error("Leaf's paths end before nodes know")
	}
}

// values returns a set of values.
func values(t *testing.T, set string) string {
	t.Helper()
	text, err := os.ReadFile(path.Join("sets", set+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEverySetOfValuesRendersAndKeepsTheLaws(t *testing.T) {
	if files, err := os.ReadDir("sets"); err != nil || len(files) != len(sets) || len(sets) != 4 {
		t.Errorf("%d sets of values, %d files, %v", len(sets), len(files), err)
	}
	for set, check := range sets {
		t.Run(set, func(t *testing.T) {
			o := render(t, values(t, set))
			for name, pod := range map[string]corev1.PodSpec{
				"worker": o.Set.Spec.Template.Spec, "test": o.Test.Spec,
			} {
				t.Run(name, func(t *testing.T) {
					hasNoPrivileges(t, pod)
					findsItsFiles(t, pod)
				})
			}
			isOneFleet(t, o)
			keepsItsData(t, o)
			isProbedForWhatItMeans(t, o)
			isGivenTimeToDrain(t, o)
			isReplacedOnce(t, o)
			for _, line := range []string{"rollout status statefulset/" + o.Set.Name, "helm -n ids test natsid\n"} {
				if !strings.Contains(o.Notes, line) || strings.Contains(o.Notes, "<no value>") {
					t.Errorf("the notes lack %q:\n%s", line, o.Notes)
				}
			}
			check(t, o)
		})
	}
}

// hasNoPrivileges checks what the Pod Security Standard "restricted" demands, and more.
func hasNoPrivileges(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	s := pod.SecurityContext
	if *s.RunAsUser != 65532 || *s.RunAsGroup != 65532 || *s.FSGroup != 65532 || !*s.RunAsNonRoot ||
		s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("security context %+v", s)
	}
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		t.Fatalf("containers %v", pod.Containers)
	}
	c := pod.Containers[0].SecurityContext
	if *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || c.Privileged != nil ||
		!slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || c.Capabilities.Add != nil {
		t.Errorf("security context of the container %+v", c)
	}
	if *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks || pod.HostNetwork || pod.HostPID {
		t.Errorf("pod %+v", pod)
	}
}

// findsItsFiles checks that each file that a variable names is one of a Secret, in a volume that
// follows the Secret.
func findsItsFiles(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	files := secretFiles(pod)
	for name, value := range env(t, pod.Containers[0]) {
		file, isFile := strings.CutPrefix(value, "/etc/natsid/")
		if isFile && files[file] == [2]string{} {
			t.Errorf("%s=%s, where no file of a Secret is", name, value)
		}
		if isFile {
			delete(files, file)
		}
	}
	if len(files) > 0 {
		t.Errorf("no variable names the files %v", files)
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if m.SubPath != "" {
			t.Errorf("%s is mounted with a subPath: a Secret that is renewed would not reach it", m.Name)
		}
	}
}

// secretFiles returns, by paths below /etc/natsid, the Secret of each file and the key.
func secretFiles(pod corev1.PodSpec) map[string][2]string {
	files := map[string][2]string{}
	for _, v := range pod.Volumes {
		for _, source := range v.Projected.Sources {
			for _, item := range source.Secret.Items {
				files[item.Path] = [2]string{source.Secret.Name, item.Key}
			}
		}
	}
	return files
}

// isOneFleet checks that every selector selects the workers, and nothing else.
func isOneFleet(t *testing.T, o objects) {
	t.Helper()
	named := map[string]map[string]string{
		"StatefulSet": o.Set.Spec.Selector.MatchLabels, "Service": o.Service.Spec.Selector,
	}
	if o.Budget != nil {
		named["PodDisruptionBudget"] = o.Budget.Spec.Selector.MatchLabels
	}
	if o.Policy != nil {
		named["NetworkPolicy"] = o.Policy.Spec.PodSelector.MatchLabels
	}
	pod := o.Set.Spec.Template.Spec
	for _, spread := range pod.TopologySpreadConstraints {
		named["topologySpread"] = spread.LabelSelector.MatchLabels
	}
	for name, selector := range named {
		if !selects(o, selector) {
			t.Errorf("%s selects %v, which is not the workers alone", name, selector)
		}
	}
	if o.Service.Spec.ClusterIP != corev1.ClusterIPNone || !o.Service.Spec.PublishNotReadyAddresses ||
		o.Set.Spec.ServiceName != o.Service.Name {
		t.Errorf("pods of %q are named by %+v", o.Set.Spec.ServiceName, o.Service.Spec)
	}
	if o.Monitor != nil {
		scraped := labels.SelectorFromSet(o.Monitor.Spec.Selector.MatchLabels)
		if !scraped.Matches(labels.Set(o.Service.Labels)) ||
			o.Monitor.Spec.Endpoints[0].Port != o.Service.Spec.Ports[0].Name {
			t.Errorf("the ServiceMonitor does not find %+v", o.Service)
		}
	}
}

// selects reports whether a selector selects workers, and not the pod of the test.
func selects(o objects, selector map[string]string) bool {
	s := labels.SelectorFromSet(selector)
	return s.Matches(labels.Set(o.Set.Spec.Template.Labels)) && !s.Matches(labels.Set(o.Test.Labels))
}

func keepsItsData(t *testing.T, o objects) {
	t.Helper()
	claims, mounts := o.Set.Spec.VolumeClaimTemplates, o.worker().VolumeMounts
	if len(claims) != 1 || mounts[0].Name != claims[0].Name ||
		mounts[0].MountPath != env(t, o.worker())["NATSID_DATA"] || mounts[0].ReadOnly {
		t.Errorf("claims %+v, mounts %+v", claims, mounts)
	}
	if keep := o.Set.Spec.PersistentVolumeClaimRetentionPolicy; keep.WhenDeleted != "Retain" ||
		keep.WhenScaled != "Retain" {
		t.Errorf("volumes are kept as %+v", keep)
	}
}

// isProbedForWhatItMeans checks that no probe but /healthz restarts a worker, and none while it
// starts: run_test.go shows that it serves no HTTP while it waits for NATS.
func isProbedForWhatItMeans(t *testing.T, o objects) {
	t.Helper()
	c := o.worker()
	const year = 365 * 86400
	start := c.StartupProbe
	if int64(start.FailureThreshold)*int64(start.PeriodSeconds) < year {
		t.Errorf("a worker that waits for NATS is restarted: %+v", start)
	}
	for path, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
		if probe.HTTPGet.Path != path || probe.HTTPGet.Port.String() != c.Ports[0].Name {
			t.Errorf("probe %+v, want %s", probe.HTTPGet, path)
		}
	}
	if start.HTTPGet.Path != "/healthz" {
		t.Errorf("startup probe %+v", start.HTTPGet)
	}
	if _, port, _ := strings.Cut(env(t, c)["NATSID_HTTP"], ":"); port != fmt.Sprint(c.Ports[0].ContainerPort) {
		t.Errorf("worker on port %s, probed on %d", port, c.Ports[0].ContainerPort)
	}
}

// isGivenTimeToDrain checks the bound of docs/reference.md: a stop takes up to --deadline and 7 s,
// and what docs/operations.md demands.
func isGivenTimeToDrain(t *testing.T, o objects) {
	t.Helper()
	const longestDeadline, stop = 60, 7
	if grace := *o.Set.Spec.Template.Spec.TerminationGracePeriodSeconds; grace < longestDeadline+stop {
		t.Errorf("a worker is killed after %d s", grace)
	}
}

// isReplacedOnce checks what deploy/kubetest needs half an hour to show: without a partition, an upgrade does not end.
func isReplacedOnce(t *testing.T, o objects) {
	t.Helper()
	how := o.Set.Spec.UpdateStrategy
	if how.Type != "RollingUpdate" || how.RollingUpdate == nil || *how.RollingUpdate.Partition != 0 {
		t.Errorf("workers are replaced by %+v", how)
	}
}

// The rules are those of deploy/alerts.yml: a link in the chart leads to it.
func TestTheRulesAreThoseOfTheAlerts(t *testing.T) {
	text, err := os.ReadFile("../alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var want ruleFile
	if err := yaml.UnmarshalStrict(text, &want); err != nil {
		t.Fatal(err)
	}
	got := render(t, someURL+"prometheusRule: {enabled: true, labels: {role: alerts}}").Rule
	if !reflect.DeepEqual(got.Spec, want) || len(want.Groups) == 0 {
		t.Error("the PrometheusRule differs from deploy/alerts.yml")
	}
	if got.Labels["role"] != "alerts" {
		t.Errorf("labels %v", got.Labels)
	}
}

// A StatefulSet refuses changes of these fields, so an upgrade of the chart must not make any.
func TestAnUpgradeChangesNoFieldThatCannotChange(t *testing.T) {
	c := loadChart(t)
	c.Metadata.Version, c.Metadata.AppVersion = "7.8.9", "7.8.9"
	next, err := tryRender(c, someURL+"settings: {max-batch: 7}")
	if err != nil {
		t.Fatal(err)
	}
	was := render(t, someURL)
	for field, pair := range map[string][2]any{
		"selector":             {was.Set.Spec.Selector, next.Set.Spec.Selector},
		"volumeClaimTemplates": {was.Set.Spec.VolumeClaimTemplates, next.Set.Spec.VolumeClaimTemplates},
		"serviceName":          {was.Set.Spec.ServiceName, next.Set.Spec.ServiceName},
		"podManagementPolicy":  {was.Set.Spec.PodManagementPolicy, next.Set.Spec.PodManagementPolicy},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s changes from %+v to %+v", field, pair[0], pair[1])
		}
	}
	if !strings.HasSuffix(next.worker().Image, ":7.8.9") {
		t.Errorf("the new version runs %s", next.worker().Image)
	}
}

// Every variable is one of docs/reference.md, and every setting of that page is a value, except for
// those that have a value of their own or are secrets.
func TestEverySettingIsAValue(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "<!-- made: settings -->")
	settings := map[string]string{} // flag by variable
	row := regexp.MustCompile("(?m)^\\| `--([a-z-]+)`(?:, `(NATS[A-Z_]+)`)? ")
	for _, m := range row.FindAllStringSubmatch(text, -1) {
		if m[2] == "" {
			m[2] = "NATSID_" + strings.ToUpper(strings.ReplaceAll(m[1], "-", "_"))
		}
		settings[m[2]] = m[1]
	}
	used := map[string]bool{}
	for set := range sets {
		o := render(t, values(t, set))
		for _, c := range o.containers() {
			for name := range env(t, c) {
				used[name] = true
				if settings[name] == "" {
					t.Errorf("%s: %s is a setting of nothing", set, name)
				}
			}
		}
	}
	var schema struct {
		Properties struct {
			Settings struct {
				Properties map[string]any `json:"properties"`
			} `json:"settings"`
		} `json:"properties"`
	}
	of, err := os.ReadFile(path.Join(chartDir, "values.schema.json"))
	if err == nil {
		err = yaml.Unmarshal(of, &schema)
	}
	if err != nil {
		t.Fatal(err)
	}
	// In plain sight, for another NATS than the chart's, or of no use in a pod.
	elsewhere := strings.Fields("context password token mysql config listen listen-conf")
	for name, flag := range settings {
		_, isValue := schema.Properties.Settings.Properties[flag]
		delete(schema.Properties.Settings.Properties, flag)
		known := isValue || slices.Contains(elsewhere, flag)
		if !known && !used[name] {
			t.Errorf("no value sets --%s", flag)
		}
		if isValue && slices.Contains(elsewhere, flag) {
			t.Errorf("the value settings.%s is one of those that must not be", flag)
		}
	}
	for flag := range schema.Properties.Settings.Properties {
		t.Errorf("the value settings.%s is no setting of natsid", flag)
	}
}

func wantEnv(t *testing.T, c corev1.Container, name, want string) {
	t.Helper()
	if got := env(t, c)[name]; got != want {
		t.Errorf("%s: %s=%q, want %q", c.Name, name, got, want)
	}
}

func wantFile(t *testing.T, pod corev1.PodSpec, file, secret, key string) {
	t.Helper()
	if got, want := secretFiles(pod)[file], [2]string{secret, key}; got != want {
		t.Errorf("%s is of the Secret and key %q, want %q", file, got, want)
	}
}

// ports returns the ports of rules, in order.
func ports(rules []networkingv1.NetworkPolicyEgressRule) string {
	var all []string
	for _, rule := range rules {
		for _, p := range rule.Ports {
			all = append(all, p.Port.String())
		}
	}
	return strings.Join(all, " ")
}

// The values of docs/kubernetes.md are those that its commands install.
func TestTheValuesOfThePageRender(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of YAML, want NATS's values and natsid's", len(blocks))
	}
	wantEnv(t, render(t, string(blocks[1][1])).worker(), "NATS_URL", "nats://nats.ids.svc:4222")
}
