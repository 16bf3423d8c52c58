package worker

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/issuer"
	"github.com/natsid/natsid/segment"
	"github.com/natsid/natsid/snowflake"
	"github.com/natsid/natsid/subjects"
)

// errSecret stands for a cause in an error's chain that no caller may see.
var errSecret = errors.New("dial tcp 10.0.0.7:3306: password")

func TestEachErrorOfTheCoresHasItsCode(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want subjects.Code
	}{
		{segment.ErrUnknownTag, 404},
		{segment.ErrDisabled, 404},
		{segment.ErrExists, 409},
		{segment.ErrInvalid, 400},
		{segment.ErrTooMany, 429},
		{segment.ErrExhausted, 410}, {segment.ErrZone, 503},
		{segment.ErrNotLoaded, 503},
		{segment.ErrClosed, 503},
		{&segment.RightError{Right: "INSERT"}, 503},
		{issuer.ErrTooMany, 429},
		{snowflake.ErrNoNumber, 503},
		{snowflake.ErrClosed, 503},
		{snowflake.ErrWindow, 503},
		{snowflake.ErrEpoch, 503},
		{snowflake.ErrTimeEnds, 503},
		{&snowflake.BehindError{By: time.Minute}, 503},
		{ofStore(errSecret), 503},
		{ofStore(segment.ErrExists), 409}, // what a store says of itself comes first
		{ofStore(segment.ErrUnknownTag), 404},
		{subjects.Errorf(400, "the body is odd"), 400},
		{errSecret, 500},
	} {
		for _, err := range []error{tc.err, fmt.Errorf("on the way: %w: %w", tc.err, errSecret)} {
			got := wireError(err, slog.New(slog.DiscardHandler))
			if got.Code != tc.want || got.Text == "" {
				t.Errorf("%v: %d %q, want %d", err, got.Code, got.Text, tc.want)
			}
			if strings.Contains(got.Text, "10.0.0.7") || strings.Contains(got.Text, "natsid ") ||
				!isPrintable(got.Text) {
				t.Errorf("%v: the text %q is not for callers", err, got.Text)
			}
		}
	}
}

// A client repeats a 503 unless it says when to come back.
func TestWhatOnlyAPersonMendsIsNotAskedForAgain(t *testing.T) {
	for err, want := range map[error]bool{
		segment.ErrUndecided: true, segment.ErrBadRow: true, segment.ErrZone: false, segment.ErrElsewhere: false,
	} {
		e := wireError(fmt.Errorf("load: %w", err), slog.New(slog.DiscardHandler))
		if got := e.RetryAfter > 0; e.Code != subjects.Unavailable || got != want {
			t.Errorf("%v: %v with a time to wait %v, want %v", err, e, got, want)
		}
	}
}

func TestARangeThatIsMissingIsNoChange(t *testing.T) {
	err := fmt.Errorf("%w: %w", segment.ErrNotLoaded, segment.ErrUncertain)
	if e := wireError(err, slog.New(slog.DiscardHandler)); strings.Contains(e.Text, "change") {
		t.Errorf("a request for IDs is answered %q", e.Text)
	}
}

func TestTheCauseBehindACodeIsInTheLog(t *testing.T) {
	for _, err := range []error{errSecret, ofStore(errSecret)} {
		var log bytes.Buffer
		wireError(err, slog.New(slog.NewTextHandler(&log, nil)))
		if !strings.Contains(log.String(), "10.0.0.7") {
			t.Errorf("%v: logged %q", err, log.String())
		}
	}
}

// A new sentinel in a core must get a row, or be one that never reaches a
// reply.
func TestEverySentinelOfTheCoresHasARow(t *testing.T) {
	rows := selectors(t, "errors.go")
	for _, core := range []string{"segment", "snowflake", "internal/issuer"} {
		var missing []string
		for _, name := range sentinels(t, filepath.Join("..", core)) {
			if !rows[filepath.Base(core)+"."+name] {
				missing = append(missing, name)
			}
		}
		// ErrWait parks the request, and after ErrStrict another load follows: they are no
		// answers. The others pass between a guard and what it guards, and stand behind ErrNotLoaded or errStore.
		inner := map[string][]string{
			"segment":         {"ErrNoWrites", "ErrNotApplied", "ErrStrict", "ErrWait"},
			"internal/issuer": {"ErrWait"},
		}[core]
		if !slices.Equal(missing, inner) {
			t.Errorf("%s: no row for %v, want none for %v only", core, missing, inner)
		}
	}
}

// sentinels returns the exported package variables Err… of the package in dir.
func sentinels(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no source in %s: %v", dir, err)
	}
	names := map[string]bool{}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		for _, decl := range parse(t, f).Decls {
			if gen, ok := decl.(*ast.GenDecl); ok && gen.Tok == token.VAR {
				for _, spec := range gen.Specs {
					for _, id := range spec.(*ast.ValueSpec).Names {
						if strings.HasPrefix(id.Name, "Err") {
							names[id.Name] = true
						}
					}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// selectors returns every package.Name in a file.
func selectors(t *testing.T, file string) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	ast.Inspect(parse(t, file), func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if pkg, ok := sel.X.(*ast.Ident); ok {
				found[pkg.Name+"."+sel.Sel.Name] = true
			}
		}
		return true
	})
	return found
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}
