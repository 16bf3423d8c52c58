package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart/loader"
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

func TestPackedTwiceItIsTheSameBytesWithTheSameFiles(t *testing.T) {
	first := packed(t, chartDir, "")
	// Other modes and times, as of another clone.
	clone := t.TempDir()
	if err := os.CopyFS(clone, os.DirFS("..")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(clone, "chart", "values.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, packed(t, filepath.Join(clone, "chart"), "")) {
		t.Error("packed twice, the chart differs")
	}
	c, err := loader.LoadArchive(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	folder, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range folder.Raw {
		files[f.Name] = string(f.Data)
	}
	for _, f := range c.Raw {
		if files[f.Name] != string(f.Data) {
			t.Errorf("%s differs from that of the folder", f.Name)
		}
		delete(files, f.Name)
	}
	if len(files) > 0 {
		t.Errorf("the archive lacks %v", files)
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
