package browser_test

import (
	"bytes"
	_ "embed"
	"flag"
	"fmt"
	"image"
	_ "image/png"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/natsid/natsid/internal/ops/page"
	"github.com/natsid/natsid/internal/testkit/frozen"
)

var update = flag.Bool("update", false, "make the pictures again of views that look different now")

// views are the views of the page. Those with a name have pictures, of the width of pictured.
var views = []struct{ name, path string }{
	{"workers", "/"}, {"", "/tags"}, {"tag", "/tag?name=order"}, {"charts", "/charts"},
}

const pictured = 1280

// readable returns what keeps people from reading the page that is shown.
//
//go:embed readable.js
var readable string

func TestEachViewIsReadableAndLooksAsInItsPicture(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(page.New(frozen.Config()))
	t.Cleanup(srv.Close)
	ctx := browse(t)
	for _, width := range []int64{pictured, 400} {
		for _, scheme := range []string{"light", "dark"} {
			do(t, ctx, "the screen", emulation.SetFocusEmulationEnabled(true), chromedp.EmulateViewport(width, 600),
				emulation.SetEmulatedMedia().WithFeatures(
					[]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
			for _, view := range views {
				var shot []byte
				var faults []string
				do(t, ctx, view.path, chromedp.Navigate(srv.URL+view.path), shows("answered"),
					chromedp.Evaluate(readable, &faults), chromedp.FullScreenshot(&shot, 100))
				file := filepath.Join("pictures", fmt.Sprintf("%s-%d-%s.png", view.name, width, scheme))
				if len(faults) > 0 {
					t.Errorf("%s at %d pixels, %s:\n%s", view.path, width, scheme, strings.Join(faults, "\n"))
				}
				if view.name != "" && width == pictured {
					compare(t, file, shot)
				}
			}
		}
	}
	if files, _ := filepath.Glob("pictures/*"); len(files) != 6 {
		t.Errorf("%d pictures, want 6: delete the others", len(files))
	}
}

// compare compares a screenshot with the picture that is kept.
func compare(t *testing.T, file string, shot []byte) {
	t.Helper()
	got, _, err := image.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	var fault string
	if f, err := os.ReadFile(file); err != nil {
		fault = err.Error()
	} else if want, _, err := image.Decode(bytes.NewReader(f)); err != nil {
		fault = err.Error()
	} else {
		fault = unlike(want, got)
	}
	switch {
	case fault == "":
	case *update:
		if err := os.WriteFile(file, shot, 0o644); err != nil {
			t.Error(err)
		}
	default:
		now := filepath.Join(os.TempDir(), "natsid-"+filepath.Base(file))
		t.Errorf("%s: %s. It looks like %s now (%v); if it should, run: go -C proof/browser test . -update",
			file, fault, now, os.WriteFile(now, shot, 0o644))
	}
}
