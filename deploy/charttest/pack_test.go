package main

import (
	"bytes"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"
)

// date is that of a commit.
var date = time.Unix(1_790_000_000, 0).UTC()

func TestHelmFindsNothingToMend(t *testing.T) {
	var given map[string]any
	if err := yaml.Unmarshal([]byte(values(t, "strictly-apart")), &given); err != nil {
		t.Fatal(err)
	}
	for _, m := range lint.All(chartDir, given, "ids", true).Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}

func TestBothVersionsOfTheChartAreNatsids(t *testing.T) {
	if m := loadChart(t).Metadata; m.Version != m.AppVersion {
		t.Errorf("version %s, appVersion %s", m.Version, m.AppVersion)
	}
}

// packed returns the archive of the chart in dir.
func packed(t *testing.T, dir, version string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := pack(&b, dir, version, date); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
