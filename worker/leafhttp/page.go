package leafhttp

import (
	"bytes"
	"context"
	"html/template"
	"net/http"
	"net/url"
	"time"
)

// pageSize is how many tags a page shows.
const pageSize = 1000

// A table is a page of tags.
type table struct {
	Columns []string
	Rows    [][]any
	Next    string // query of the next page; "" if there is none
}

var layoutOf = template.Must(template.New("table").Parse(`<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Leaf</title></head>
<body>
<table>
<thead><tr>{{range .Columns}}<th>{{.}}</th>{{end}}</tr></thead>
<tbody>
{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</tbody>
</table>
{{with .Next}}<p><a href="{{.}}">next tags</a></p>{{end}}
</body>
</html>
`))

// page answers with a table of tags whose names are above the parameter after.
func (s *Server) page(
	w http.ResponseWriter, r *http.Request, of func(ctx context.Context, after string) (table, error),
) {
	ctx, cancel := context.WithTimeout(r.Context(), s.cfg.Deadline)
	defer cancel()
	select {
	case s.pages <- struct{}{}:
		defer func() { <-s.pages }()
	case <-ctx.Done():
		s.pageFault(w, r, ctx.Err())
		return
	}
	t, err := of(ctx, r.URL.Query().Get("after"))
	if err != nil {
		s.pageFault(w, r, err)
		return
	}
	var b bytes.Buffer
	if err := layoutOf.Execute(&b, t); err != nil {
		panic(err) // a bug
	}
	h := w.Header()
	h.Set("Content-Type", "text/html;charset=UTF-8")
	h.Set("Content-Security-Policy", "default-src 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(b.Bytes()) // it fails if the caller is gone
}

// linkNext makes the page link to the next one, if it has pageSize tags, of which last is the last.
func (t *table) linkNext(tags int, last string) {
	if tags == pageSize {
		t.Next = "?" + url.Values{"after": {last}}.Encode()
	}
}

// cache returns the ranges in memory of each tag: the current range and the next one, in Leaf's terms. A value is the
// next ID, and a max the first ID above the range.
func (s *Server) cache(_ context.Context, after string) (t table, err error) {
	t.Columns = []string{"name", "init", "next", "pos", "value0", "max0", "step0", "value1", "max1", "step1"}
	tags := s.cfg.Segments.StatsAfter(after, pageSize)
	for _, tag := range tags {
		ranges := len(tag.Ranges)
		row := []any{tag.Tag, ranges > 0, ranges > 1, 0}
		for i := range 2 {
			if i < ranges {
				r := tag.Ranges[i]
				row = append(row, r.Next, r.Last+1, r.Last-r.First+1)
			} else {
				row = append(row, 0, 0, 0)
			}
		}
		t.Rows = append(t.Rows, row)
		t.linkNext(len(tags), tag.Tag)
	}
	return t, nil
}

// db returns the tags as stored, without those that were deleted.
func (s *Server) db(ctx context.Context, after string) (t table, err error) {
	t.Columns = []string{"tag", "max", "step", "update"}
	tags, err := s.cfg.Store.List(ctx, after, pageSize)
	for _, tag := range tags {
		if !tag.Disabled {
			updated := tag.Updated.In(time.Local).Format(time.DateTime)
			t.Rows = append(t.Rows, []any{tag.Name, tag.MaxID, tag.Step, updated})
		}
		t.linkNext(len(tags), tag.Name)
	}
	return t, err
}
