package deploy_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// needs returns the path of a program that `make deps` installs. Without it the test is
// skipped, and fails under CI.
func needs(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		report := t.Skipf
		if os.Getenv("CI") != "" {
			report = t.Fatalf
		}
		report("%s needs %s: run `make deps`", t.Name(), program)
	}
	return path
}

// healthy is a worker and a stage at rest, scraped once a minute.
var healthy = map[string]string{
	`up{job="natsid",instance="w1"}`:                                              "1x30",
	`process_start_time_seconds{job="natsid",instance="w1"}`:                      "-86400x30",
	`natsid_ready{job="natsid",instance="w1",mode="segment"}`:                     "1x30",
	`natsid_ready{job="natsid",instance="w1",mode="snowflake"}`:                   "1x30",
	`natsid_alarms_total{job="natsid",instance="w1",kind="overload"}`:             "3x30", // raised yesterday
	`natsid_requests_total{job="natsid",instance="w1",mode="segment",code="200"}`: "0+6000x30",
	`natsid_requests_total{job="natsid",instance="w1",mode="segment",code="500"}`: "1x30",
	`natsid_requests_total{job="natsid",instance="w1",mode="segment",code="503"}`: "0+6x30",
	requestBucket("0.001"): "0+6000x30",
	requestBucket("1.07"):  "0+6000x30",
	requestBucket("+Inf"):  "0+6006x30",
	`natsid_lag_seconds{job="natsid",instance="w1",mode="segment"}`:                 "0.01x30",
	`natsid_waiting_requests{job="natsid",instance="w1",mode="segment"}`:            "0x30",
	`natsid_wait_seconds_count{job="natsid",instance="w1",mode="segment"}`:          "0+10x30",
	`natsid_segment_seconds_left{job="natsid",instance="w1"}`:                       "30x30", // loads are quick
	`natsid_segment_load_seconds_count{job="natsid",instance="w1",outcome="error"}`: "1x30",
	loadBucket("0.256"): "0+60x30",
	loadBucket("1.024"): "0+60x30",
	loadBucket("+Inf"):  "0+60x30",
	`natsid_snowflake_window_seconds{job="natsid",instance="w1"}`:              "250x30",
	`natsid_worker_number{job="natsid",instance="w1"}`:                         "7x30",
	`natsid_clock_offset_seconds{job="natsid",instance="w1"}`:                  "-0.02x30",
	`natsid_second_registry{job="natsid",instance="w1"}`:                       "0x30",
	`natsid_snowflake_time_ends_timestamp_seconds{job="natsid",instance="w1"}`: "3487858230x30",

	`up{job="natsid-stamp",instance="s1"}`:                         "1x30",
	`process_start_time_seconds{job="natsid-stamp",instance="s1"}`: "-86400x30",
	stamp("dead_letters_total"):                                    "7x30", // of yesterday
	copying:                                                        "1x30",
	stamp("ready"):                                                 "1x30",
	stamp("behind"):                                                "50x30",
	stamp("fenced_total"):                                          "0x20 1x10",
	stamp("retries_total"):                                         "0x20 1x10", stamp("hint_failures_total"): "1x30",
}

// stamp names a series of a stage.
func stamp(name string) string {
	return `natsid_stamp_` + name + `{job="natsid-stamp",instance="s1",from="orders",to="stamped"}`
}

const copying = `natsid_stamp_role{job="natsid-stamp",instance="s1",from="orders",to="stamped",role="copying"}`

func requestBucket(le string) string {
	return `natsid_request_seconds_bucket{job="natsid",instance="w1",mode="segment",code="200",le="` + le + `"}`
}

func loadBucket(le string) string {
	return `natsid_segment_load_seconds_bucket{job="natsid",instance="w1",outcome="ok",le="` + le + `"}`
}

func alarm(kind string) string {
	return `natsid_alarms_total{job="natsid",instance="w1",kind="` + kind + `"}`
}

// unwell are workers of which one thing differs from healthy, and the alerts that it causes.
var unwell = []struct {
	law    string
	series map[string]string
	alerts []string
}{
	{"a worker that does not answer, and is the only one", map[string]string{
		`up{job="natsid",instance="w1"}`: "0x30",
	}, []string{"NatsidDown", "NatsidNobodyReady"}},
	{"one of two", map[string]string{
		`up{job="natsid",instance="w2"}`: "0x30",
	}, []string{"NatsidDown"}},
	{"a worker that is not ready, and is the only one", map[string]string{
		`natsid_ready{job="natsid",instance="w1",mode="segment"}`: "0x30",
	}, []string{"NatsidNobodyReady", "NatsidNotReady"}},
	{"one of two that is not ready", map[string]string{
		`natsid_ready{job="natsid",instance="w2",mode="segment"}`: "0x30",
	}, []string{"NatsidNotReady"}},
	{"a bug", map[string]string{
		`natsid_requests_total{job="natsid",instance="w1",mode="segment",code="500"}`: "1x20 2x10",
	}, []string{"NatsidInternalErrors"}},
	{"503 for 2 %", map[string]string{
		`natsid_requests_total{job="natsid",instance="w1",mode="segment",code="503"}`: "0+120x30",
	}, []string{"NatsidUnavailable"}},
	{"2 % that take more than a second", map[string]string{
		requestBucket("+Inf"): "0+6120x30", requestBucket("2.14"): "0+6120x30",
	}, []string{"NatsidSlow"}},
	{"a lag", map[string]string{
		`natsid_lag_seconds{job="natsid",instance="w1",mode="segment"}`: "0.2x30",
	}, []string{"NatsidLate"}},
	{"requests that wait", map[string]string{
		`natsid_waiting_requests{job="natsid",instance="w1",mode="segment"}`: "2x30",
	}, []string{"NatsidWaiting"}},
	{"many that waited", map[string]string{
		`natsid_wait_seconds_count{job="natsid",instance="w1",mode="segment"}`: "0+600x30",
	}, []string{"NatsidWaits"}},
	{"loads that fail while a tag runs out", map[string]string{
		`natsid_segment_load_seconds_count{job="natsid",instance="w1",outcome="error"}`: "0+10x30",
	}, []string{"NatsidLoadsFail", "NatsidTagRunsOut"}},
	{"loads of a busy tag that fail while it runs out", map[string]string{
		`natsid_segment_seconds_left{job="natsid",instance="w1"}`:              "30x30",
		`natsid_tag_seconds_left{job="natsid",instance="w1",tag="order"}`:      "30x30",
		`natsid_tag_load_errors_total{job="natsid",instance="w1",tag="order"}`: "0+10x30",
		`natsid_tag_seconds_left{job="natsid",instance="w1",tag="seat"}`:       "900x30",
		`natsid_tag_load_errors_total{job="natsid",instance="w1",tag="seat"}`:  "0+10x30",

		`natsid_segment_load_seconds_count{job="natsid",instance="w1",outcome="error"}`: "0+20x30",
	}, []string{"NatsidLoadsFail", "NatsidTagRunsOut"}},
	{"a worker that relays", map[string]string{
		`natsid_out_of_group{job="natsid",instance="w1",mode="relay",reason="store"}`: "1x30",
	}, []string{"NatsidLoadsFail"}},
	{"loads that fail while all tags last", map[string]string{
		`natsid_segment_load_seconds_count{job="natsid",instance="w1",outcome="error"}`: "0+10x30",
		`natsid_segment_seconds_left{job="natsid",instance="w1"}`:                       "900x30",
	}, []string{"NatsidLoadsFail"}},
	{"loads that are slow", map[string]string{
		loadBucket("0.256"): "0+50x30",
	}, []string{"NatsidLoadsSlow"}},
	{"a window that is not renewed", map[string]string{
		`natsid_snowflake_window_seconds{job="natsid",instance="w1"}`: "90x30",
	}, []string{"NatsidWindowShort"}},
	{"no window without a number", map[string]string{ // NatsidNotReady says it
		`natsid_snowflake_window_seconds{job="natsid",instance="w1"}`: "0x30",
		`natsid_worker_number{job="natsid",instance="w1"}`:            "-1x30",
	}, nil},
	{"a clock that is behind", map[string]string{
		`natsid_clock_offset_seconds{job="natsid",instance="w1"}`: "-0.7x30",
	}, []string{"NatsidClockOffset"}},
	{"a second registry", map[string]string{
		`natsid_second_registry{job="natsid",instance="w1"}`: "1x30",
	}, []string{"NatsidSecondRegistry"}},
	{"a second registry that raised an alarm, too", map[string]string{
		`natsid_second_registry{job="natsid",instance="w1"}`: "1x30", alarm("second-registry"): "0x25 1x5",
	}, []string{"NatsidSecondRegistry"}},
	{"time that ends in four years", map[string]string{
		`natsid_snowflake_time_ends_timestamp_seconds{job="natsid",instance="w1"}`: "126230400x30",
	}, []string{"NatsidTimeEnds"}},
	{"an alarm of a worker that has just started", map[string]string{
		`process_start_time_seconds{job="natsid",instance="w1"}`: "1500x30", alarm("state-file"): "_x25 1x5",
		alarm("overload"): "_x30",
	}, []string{"NatsidStateFile"}},
	{"an alarm that was raised before a restart, and after it", map[string]string{
		`process_start_time_seconds{job="natsid",instance="w1"}`: "-86400x25 1500x5", alarm("state-file"): "1x30",
		alarm("overload"): "3x25 0x5",
	}, []string{"NatsidStateFile"}},
	{"a stage that falls behind", map[string]string{
		stamp("behind"): "0+100x30",
	}, []string{"NatsidStampBehind"}},
	{"a dead letter", map[string]string{
		stamp("dead_letters_total"): "7x20 8x10",
	}, []string{"NatsidStampDeadLetters"}},
	{"a dead letter before the first scrape of a stage", map[string]string{
		`process_start_time_seconds{job="natsid-stamp",instance="s1"}`: "-86400x25 1500x5",
		stamp("dead_letters_total"):                                    "1x30",
	}, []string{"NatsidStampDeadLetters"}},
	{"stages that take over from each other", map[string]string{
		stamp("fenced_total"): "0+1x30",
	}, []string{"NatsidStampFenced"}},
	{"hints that are not written", map[string]string{
		stamp("hint_failures_total"): "0x20 1x10",
	}, []string{"NatsidStampHintsFail"}},
	{"a stage that does not copy, and is the only one", map[string]string{
		copying: "0x30",
	}, []string{"NatsidStampNobodyCopies"}},
	{"a stage that does not answer, and is the only one", map[string]string{
		`up{job="natsid-stamp",instance="s1"}`: "0x30",
	}, []string{"NatsidDown", "NatsidStampNobodyCopies"}},
	{"a stage that is not ready", map[string]string{
		stamp("ready"): "0x30",
	}, []string{"NatsidStampNotReady"}},
	{"a stage that is interrupted", map[string]string{
		stamp("retries_total"): "0+1x30",
	}, []string{"NatsidStampRetries"}},
}

func TestEachAlertFiresWhenItShouldAndOnlyThen(t *testing.T) {
	promtool := needs(t, "promtool")
	rules, err := filepath.Abs("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	file := map[string]any{"rule_files": []string{rules}, "evaluation_interval": "1m"}
	var tests []any
	fired := map[string]bool{}
	add := func(law string, series map[string]string, alerts []string) {
		all := maps.Clone(healthy)
		maps.Copy(all, series)
		var input, want []any
		for _, name := range slices.Sorted(maps.Keys(all)) {
			input = append(input, map[string]string{"series": name, "values": all[name]})
		}
		for _, name := range alerts {
			fired[name] = true
			want = append(want, map[string]any{"labels": fmt.Sprintf("{alertname=%q}", name), "value": 1})
		}
		tests = append(tests, map[string]any{
			"name": law, "interval": "1m", "input_series": input,
			"promql_expr_test": []any{map[string]any{
				"expr": `count by (alertname) (ALERTS{alertstate="firing"})`, "eval_time": "29m", "exp_samples": want,
			}},
		})
	}
	add("nothing", nil, nil)
	for _, u := range unwell {
		add(u.law, u.series, u.alerts)
	}
	named := alerts(t)
	for _, name := range named {
		if kind := kindOf(name); strings.Contains(readFile(t, "alerts.yml"), `raised15m{kind="`+kind+`"}`) {
			add("the alarm "+kind, map[string]string{alarm(kind): "0x20 1x10"}, []string{name})
		}
	}
	for _, name := range named {
		if !fired[name] {
			t.Errorf("no test sees %s fire", name)
		}
	}
	file["tests"] = tests
	text, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "test.yml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", rules}, {"test", "rules", path}} {
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args[:2], " "), err, out)
		}
	}
}

// alerts returns the names of all alerts.
func alerts(t *testing.T) (names []string) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert string `yaml:"alert"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "alerts.yml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				names = append(names, r.Alert)
			}
		}
	}
	return names
}

// kindOf returns the kind of alarm that an alert is named after, as clock-skew for
// NatsidClockSkew.
func kindOf(alert string) string {
	var b strings.Builder
	for i, r := range strings.TrimPrefix(alert, "Natsid") {
		if i > 0 && 'A' <= r && r <= 'Z' {
			b.WriteByte('-')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}
