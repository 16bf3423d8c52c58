// Package browser_test shows the page in a real browser.
package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	cdp "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/ops/page"
	"github.com/natsid/natsid/internal/testkit/frozen"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
)

// patience bounds each wait: a busy machine is slow.
const patience = 2 * time.Minute

// fontsConf lets the browser use one family of fonts, so that pictures are the same on all machines.
const (
	fontsDir  = "/usr/share/fonts/truetype/dejavu"
	fontsConf = `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
<dir>` + fontsDir + `</dir>
<match target="pattern"><edit name="family" mode="append_last"><string>DejaVu Sans</string></edit></match>
<alias><family>ui-monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
</fontconfig>
`
)

// browse starts a browser, and returns a tab of it.
func browse(t *testing.T) context.Context {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Fatal("the tests of the page need chromium: run make deps")
	}
	if _, err := os.Stat(fontsDir + "/DejaVuSans.ttf"); err != nil {
		t.Fatalf("the tests of the page need a font: %v: run make deps", err)
	}
	fonts := filepath.Join(t.TempDir(), "fonts.conf")
	if err := os.WriteFile(fonts, []byte(fontsConf), 0o600); err != nil {
		t.Fatal(err)
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("no-sandbox", os.Geteuid() == 0), chromedp.Env("FONTCONFIG_FILE="+fonts),
		chromedp.Flag("font-render-hinting", "none"))
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, opts...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	return ctx
}

// do runs actions, and fails the test if one fails.
func do(t *testing.T, ctx context.Context, what string, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(ctx, actions...); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// shows waits until the page shows a text.
func shows(text string) chromedp.Action {
	return holds(fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// holds waits until an expression is true. While another page is loaded nothing can be asked of it.
func holds(expression string) chromedp.Action {
	return chromedp.ActionFunc(func(ctx context.Context) error {
		is := false
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if err := chromedp.Evaluate(expression, &is).Do(ctx); err == nil && is {
				return nil
			}
		}
		return fmt.Errorf("it does not hold: %s", expression)
	})
}

// A fleet answers like the frozen one, until a worker of it dies.
type fleet struct {
	mu   sync.Mutex
	dead string
	at   time.Duration
}

func (f *fleet) Look(ctx context.Context, q wire.ViewRequest) (fleetview.Snapshot, error) {
	s, err := frozen.Config().Fleet.Look(ctx, q)
	f.mu.Lock()
	defer f.mu.Unlock()
	s.At = s.At.Add(f.at)
	for i := range s.Workers {
		if s.Workers[i].Name() == f.dead {
			s.Workers[i].Answered = false
		}
	}
	return s, err
}

// changes changes lists at random in place, and returns what is not as it should be then.
const changes = `(() => {
	const list = () => {
		const all = document.createElement("ul"), keys = [...Array(9).keys()].sort(() => Math.random() - .5);
		for (const key of keys.slice(0, Math.random() * 9)) {
			const e = all.appendChild(document.createElement(key < 3 ? "p" : "li"));
			if (key > 1) e.dataset.key = key;
			if (Math.random() < .3) e.className = "a";
			e.append("text " + Math.random());
			if (Math.random() < .8) e.after(" ");
		}
		return all;
	};
	for (let i = 0; i < 2000; i++) {
		const old = list(), now = list(), was = old.outerHTML;
		follow(old, now);
		if (!old.isEqualNode(now)) return was + " became " + old.outerHTML + ", want " + now.outerHTML;
	}
	return "";
})()`

func TestThePageInABrowser(t *testing.T) {
	t.Parallel()
	cfg, live := frozen.Config(), new(fleet)
	cfg.Fleet = live
	small, _ := cfg.Tags(t.Context())
	cfg.Tags = func(context.Context) (tags []segment.Tag, _ error) {
		tags = append(tags, small...)
		for i := range 100_000 {
			tags = append(tags, segment.Tag{Name: fmt.Sprintf("tag%06d", i), Step: 1000, MaxID: 1})
		}
		return tags, nil
	}
	var requests atomic.Int64
	h := page.New(cfg)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	ctx := browse(t)
	var alerts atomic.Int64
	chromedp.ListenTarget(ctx, func(event any) {
		if _, is := event.(*cdp.EventJavascriptDialogOpening); is {
			alerts.Add(1)
		}
	})

	do(t, ctx, "the first view", cdp.Enable(), chromedp.Navigate(srv.URL), shows("3 of 4 answered"),
		shows("no answer"), chromedp.Evaluate(
			`document.querySelector("nav a").focus(); window.kept = document.querySelector("h1"); 0`, nil))
	hide := func(hidden bool) chromedp.Action {
		return chromedp.Evaluate(fmt.Sprintf(`
			Object.defineProperty(document, "hidden", {value: %v, configurable: true});
			document.dispatchEvent(new Event("visibilitychange")); 0`, hidden), nil)
	}
	do(t, ctx, "a tab that is hidden", hide(true), chromedp.Sleep(time.Second)) // in which a request ends
	before := requests.Load()
	do(t, ctx, "a tab that stays hidden", chromedp.Sleep(2500*time.Millisecond))
	if n := requests.Load() - before; n != 0 {
		t.Errorf("a tab that nobody sees asked %d times", n)
	}
	do(t, ctx, "a tab that is shown again", hide(false))
	live.mu.Lock()
	live.dead, live.at = "beta", 2*time.Second
	live.mu.Unlock()
	var same bool
	do(t, ctx, "a worker that dies", shows("2 of 4 answered"), shows("1 of 4"),
		chromedp.Evaluate(`window.kept === document.querySelector("h1") &&
			document.activeElement === document.querySelector("nav a")`, &same))
	if !same {
		t.Error("the view was made anew, or lost the focus")
	}
	var fault string
	do(t, ctx, "changes in place", chromedp.Evaluate(changes, &fault))
	if fault != "" {
		t.Errorf("a change in place makes something else: %s", fault)
	}
	do(t, ctx, "tags, by a click", chromedp.Click(`//a[text()="Tags"]`), shows("1 to 50 of 100,007 tags"),
		chromedp.Click(`a[rel=next]`), shows("51 to 100 of 100,007 tags"))
	do(t, ctx, "a search", chromedp.SendKeys("#q", "<script>\n"), shows("1 to 1 of 1 found among 100,007 tags"))
	do(t, ctx, "a tag that would run", chromedp.Click("#tags tbody a"), shows("Tag "+frozen.Hostile))
	do(t, ctx, "a tag's own view", chromedp.Navigate(srv.URL+"/tag?name=order"), shows("Ranges in memory"))
	do(t, ctx, "the last hour", chromedp.Navigate(srv.URL+"/charts"), shows("IDs a second"))
	do(t, ctx, "the first view again", chromedp.Navigate(srv.URL), shows("answered"))
	srv.CloseClientConnections()
	srv.Listener.Close()
	do(t, ctx, "a worker that is gone", shows("This worker does not answer any more"))
	if n := alerts.Load(); n > 0 {
		t.Errorf("a text ran as a script %d times", n)
	}
}
