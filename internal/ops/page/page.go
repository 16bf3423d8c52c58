// Package page shows the whole fleet to people, in a browser; it is internal to natsid and may change.
//
// It only reads: changes are shown as commands to copy. Nothing is read while no page is open, and data for many
// viewers is read once: see [fleetview.Shared]. Each view is a template in assets, and a function that
// returns the data of the template. A script renews the views every two seconds; without it, the browser reloads
// them.
package page

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"slices"
	"time"

	"github.com/natsid/natsid/internal/ops/fleetview"
	"github.com/natsid/natsid/internal/wire"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/subjects"
)

// Config is the sources of the page. All fields must be set.
type Config struct {
	Fleet interface {
		Look(context.Context, wire.ViewRequest) (fleetview.Snapshot, error)
	}
	Tags      func(context.Context) ([]segment.Tag, error) // in the order of names
	Info      func(segment.Tag) subjects.TagInfo           // a tag as in replies, with its limits
	Notes     func() []string                              // notes for operators
	Namespace subjects.Namespace
	Instance  func() string // the name of this worker
	Now       func() time.Time
}

//go:embed assets
var assets embed.FS

// A page serves the views.
type page struct {
	cfg  Config
	tags *fleetview.Shared[listing]
}

// A view returns the data of its template, in which data that cannot be read is marked. After an error the page shows
// only the error.
type view func(*page, *http.Request, fleetview.Snapshot) (any, error)

// views are the views in the order of the navigation; views without a title are linked from others.
var views = []struct {
	path, title, file string
	view              view
}{
	{"/", "Workers", "workers.html", func(_ *page, _ *http.Request, s fleetview.Snapshot) (any, error) {
		return s.Overview(), nil
	}},
	{"/tags", "Tags", "tags.html", (*page).tagList},
	{"/tag", "", "tag.html", (*page).tag},
	{"/charts", "Last hour", "charts.html", (*page).charts},
}

// New returns the page. It starts nothing.
func New(cfg Config) http.Handler {
	p := &page{cfg: cfg}
	p.tags = &fleetview.Shared[listing]{Now: cfg.Now, Read: p.list, Fresh: 2 * time.Second, Share: 20}
	mux := http.NewServeMux()
	for _, v := range views {
		t := template.Must(template.New("page.html").Funcs(words).ParseFS(assets, "assets/page.html", "assets/"+v.file))
		path := v.path
		if path == "/" {
			path = "/{$}"
		}
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { p.show(w, r, v.path, t, v.view) })
	}
	for _, name := range []string{"page.css", "page.js"} {
		mux.HandleFunc("GET /"+name, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-cache")
			http.ServeFileFS(w, r, assets, "assets/"+name)
		})
	}
	return protected(mux)
}

// policy lets the browser load only resources of the page itself.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// protected adds the headers that keep other sites from using the page.
func protected(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		next.ServeHTTP(w, r)
	})
}

// A frame is the part of a page around the view.
type frame struct {
	Path, Title string
	Nav         []link
	Namespace   subjects.Namespace
	Instance    string
	At          time.Time
	Workers     []fleetview.Worker
	Answered    int
	Notes       []string
	Natsid      string            // how commands begin: natsid, and --namespace if needed
	Wrong       []fleetview.Fault // the worst first, at most maxWrong of WrongCount
	WrongCount  int
	Trouble     error // why the view cannot be shown
	View        any
}

type link struct {
	Path, Title string
	Here        bool
}

// maxWrong bounds how many faults one page names.
const maxWrong = 20

// wrong returns the present faults, the worst first, and then the open alarms.
func (p *page) wrong(ctx context.Context, s fleetview.Snapshot) []fleetview.Fault {
	l, _, err := p.listed(ctx)
	if err != nil && !errors.Is(err, errLate) {
		what := "the tags cannot be read: " + fleetview.Why(err)
		l.wrong = append(slices.Clip(l.wrong), fleetview.Fault{What: what, Do: "run `natsid status`"})
	}
	all := s.Wrong(l.wrong)
	for _, a := range s.Overview().Alarms {
		if !a.Over {
			all = append(all, a.Fault())
		}
	}
	return all
}

// patience is how long a view may take.
const patience = 5 * time.Second

// show writes a view. It renders the whole page before it writes, so that a browser never gets half of a page.
func (p *page) show(w http.ResponseWriter, r *http.Request, path string, t *template.Template, v view) {
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	r = r.WithContext(ctx)
	f := frame{Path: path, Namespace: p.cfg.Namespace, Instance: p.cfg.Instance(), Notes: p.cfg.Notes()}
	if f.Natsid = "natsid"; f.Namespace != subjects.DefaultNamespace {
		f.Natsid += " --namespace " + string(f.Namespace)
	}
	for _, v := range views {
		if v.path == path {
			f.Title = cmp.Or(v.title, "Tag")
		}
		if v.title != "" {
			f.Nav = append(f.Nav, link{v.path, v.title, v.path == path || v.path == "/tags" && path == "/tag"})
		}
	}
	all, err := p.cfg.Fleet.Look(ctx, wire.ViewRequest{Busiest: true})
	f.At, f.Workers, f.Answered = all.At.UTC(), all.Workers, all.Answered()
	if err == nil {
		f.Wrong = p.wrong(ctx, all)
		f.WrongCount = len(f.Wrong)
		f.Wrong = f.Wrong[:min(f.WrongCount, maxWrong)]
		f.View, err = v(p, r, all)
	}
	code := http.StatusOK
	if f.Trouble = err; err != nil {
		code = http.StatusServiceUnavailable
	}
	var out bytes.Buffer
	if err := t.Execute(&out, f); err != nil {
		http.Error(w, "the page has a fault; report this as a bug: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(out.Bytes()) // it fails if the browser is gone
}
