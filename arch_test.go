package main_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "github.com/natsid/natsid"

// Modules of others, each with all its packages.
const (
	backoff     = "github.com/cenkalti/backoff/v4"
	flock       = "github.com/gofrs/flock"
	goleak      = "go.uber.org/goleak"
	kong        = "github.com/alecthomas/kong"
	mysqlDriver = "github.com/go-sql-driver/mysql"
	natsGo      = "github.com/nats-io/nats.go"
	natsServer  = "github.com/nats-io/nats-server/v2"
	natsJWT     = "github.com/nats-io/jwt/v2"
	nkeys       = "github.com/nats-io/nkeys"
	porcupine   = "github.com/anishathalye/porcupine"
	prometheus  = "github.com/prometheus"
	system      = "golang.org/x/sys"
	yaml        = "go.yaml.in/yaml"
)

// arrows says what each package may import besides the standard library.
// docs/architecture.md shows it. What follows from it: the cores do not know
// NATS, only internal/metrics knows prometheus, only internal/natsembed and e2e
// know nats-server, and only segment/mysqlstore knows the MySQL driver.
var arrows = map[string][]string{
	".": {"internal/cli"},

	"subjects": {},
	"policy":   {"internal/ration"},

	"policy/fleet": {"policy", "subjects", "internal/buckets", "internal/jitter", natsGo},
	"snowflake":    {},

	"segment":             {"internal/jitter", "internal/latency"},
	"segment/attempt":     {"segment"},
	"segment/guard":       {"segment", "segment/attempt", "internal/jitter"},
	"segment/kvstore":     {"segment", "segment/attempt", "lineage", "internal/buckets", "internal/jitter", backoff},
	"segment/move":        {"segment"},
	"segment/mysqlstore":  {"segment", mysqlDriver},
	"segment/segmenttest": {"segment"},
	"segment/simulation":  {}, // test files only

	"workerid":              {"snowflake", "internal/durable", backoff},
	"workerid/workeridtest": {"workerid", "snowflake"},
	"kvregistry":            {"workerid", "internal/buckets", natsGo, backoff},

	"lineage":         {"segment", "internal/buckets", "internal/durable", "internal/jitter"},
	"lineage/natsbus": {"subjects", natsGo},

	"worker": {"subjects", "policy", "segment", "snowflake", "internal/jitter", "internal/ration", natsGo},
	"client": {"subjects", natsGo},
	"stamp":  {"client", natsGo},

	"internal/standby":     {"internal/jitter", "internal/latency"},
	"internal/buckets":     {natsGo},
	"internal/durable":     {system},
	"internal/fleetview":   {"subjects", "workerid", natsGo},
	"internal/grants":      {natsGo},
	"internal/jitter":      {backoff},
	"internal/latency":     {},
	"internal/leafhttp":    {"segment", "snowflake", "subjects", "worker"},
	"internal/loglimit":    {},
	"internal/measure":     {},
	"internal/metrics":     {"segment", "snowflake", "subjects", "workerid", "worker", "internal/stage", prometheus},
	"internal/monitor":     {},
	"internal/natsembed":   {"internal/durable", natsServer, nkeys},
	"internal/page":        {"subjects", "snowflake", "segment", "workerid", "internal/fleetview"},
	"internal/page/frozen": {"subjects", "snowflake", "segment", "workerid", "internal/fleetview", "internal/page"},
	"internal/ration":      {},
	"internal/stage":       {"client", "stamp", "internal/jitter", natsGo},
	"internal/rights":      {"subjects", "internal/buckets", natsGo},
	"internal/configfile":  {yaml},
	"internal/natscontext": {},

	"internal/testkit/exampletb": {},
	"internal/testkit/freeport":  {},
	"internal/testkit/ledger":    {},
	"internal/testkit/linear":    {porcupine},
	"internal/testkit/mutant":    {},
	"internal/testkit/mysqltest": {"internal/testkit/freeport", "internal/testkit/tcpproxy", mysqlDriver},
	"internal/testkit/natsproxy": {"internal/testkit/tcpproxy"},
	"internal/testkit/natstest":  {"internal/natsembed", natsGo, goleak},
	"internal/testkit/overload":  {"internal/testkit/ledger", "subjects", natsGo},
	"internal/testkit/steps":     {},
	"internal/testkit/tcpproxy":  {},

	"internal/app": {"subjects", "snowflake", "segment", "segment/guard", "segment/kvstore", "segment/mysqlstore",
		"lineage", "lineage/natsbus", "policy", "policy/fleet", "workerid", "kvregistry", "worker",
		"internal/standby", "internal/buckets", "internal/configfile", "internal/durable",
		"internal/fleetview", "internal/grants", "internal/jitter", "internal/leafhttp", "internal/loglimit",
		"internal/metrics", "internal/monitor", "internal/page",
		"internal/natscontext", "internal/natsembed", "internal/passon", "internal/rights", natsGo, backoff, flock},
	"internal/passon": {"segment", "subjects", "internal/jitter", "internal/latency", natsGo},
	"internal/cli": {"internal/app", "client", "stamp", "internal/stage",
		"subjects", "snowflake", "workerid", "kvregistry", "lineage", "lineage/natsbus",
		"internal/buckets", "internal/grants", "internal/measure", "internal/metrics",
		"internal/monitor", "internal/rights",
		"segment", "segment/kvstore", "segment/move", "segment/mysqlstore", kong, natsGo},

	"e2e":                {"e2e/internal/setup", "internal/app", "internal/natsembed", "client", "subjects", natsGo},
	"e2e/internal/setup": {"internal/app", "subjects"},
	"e2e/tests":          {natsServer, natsJWT, nkeys}, // test files only

	"faults": {"client", "subjects", "internal/testkit/freeport", "internal/testkit/ledger", "internal/testkit/linear",
		"internal/testkit/mysqltest", "internal/testkit/natsproxy", "internal/testkit/overload", natsGo},
}

// forTests is what test files may import on top of their package's row. A
// server for a test comes from internal/natsembed, e2e or internal/testkit/mysqltest.
var forTests = []string{"...", goleak, natsGo, mysqlDriver}

// forTestsOf is what the test files of one package may import on top of that.
var forTestsOf = map[string][]string{
	"client": {prometheus}, // an example for users
	".":      {yaml},       // rules of alerts

	"e2e/tests": {system}, // modes of a terminal
}

func TestArrowsOfImport(t *testing.T) {
	for _, fault := range wrongArrows(readModule(t, os.DirFS("."))) {
		t.Error(fault)
	}
}

func TestEveryPackageSaysWhatItIsForInOnePlace(t *testing.T) {
	for _, fault := range wrongDocs(readModule(t, os.DirFS("."))) {
		t.Error(fault)
	}
}

func TestAWrongArrowIsSeen(t *testing.T) {
	const us = module + "/"
	for _, tc := range []struct {
		law, file, imports string
		want               string // part of the fault, "" for none
	}{
		{"std is free", "subjects/a.go", "net/http", ""},
		{"an arrow of the row", "worker/a.go", us + "subjects", ""},
		{"a package below a third party of the row", "worker/a.go", natsGo + "/micro", ""},
		{"a neighbour in name only", "worker/a.go", natsGo + "-fork", "may not import"},
		{"a row names one package, not those below it", "worker/a.go", us + "segment/kvstore", "may not import"},
		{"the cores do not know NATS", "segment/a.go", natsGo, "may not import"},
		{"a file for one system counts", "segment/a_windows.go", natsGo, "may not import"},
		{"prometheus stays in metrics", "internal/app/a.go", prometheus + "/client_golang", "may not import"},
		{"in tests, too", "worker/a_test.go", prometheus + "/client_golang/prometheus", "may not import"},
		{"but in an example of the client", "client/a_test.go", prometheus + "/client_golang/prometheus", ""},
		{"nats-server stays in natsembed and e2e", "worker/a_test.go", natsServer + "/server", "may not import"},
		{"the MySQL driver stays in segment/mysqlstore", "internal/app/a.go", mysqlDriver, "may not import"},
		{"its tests may use it", "internal/app/a_test.go", mysqlDriver, ""},
		{"a server for tests is for tests", "internal/app/a.go", us + "internal/testkit/mysqltest", "may not import"},
		{"main knows only the command line", "main.go", us + "internal/app", "may not import"},
		{"the composition root knows the rooms", "internal/app/a.go", us + "kvregistry", ""},
		{"but not what starts it", "internal/app/a.go", us + "internal/cli", "may not import"},
		{"its tests may", "internal/app/a_test.go", us + "client", ""},
		{"and no test kits", "internal/app/a.go", us + "segment/segmenttest", "may not import"},
		{"tests may know all rooms", "subjects/a_test.go", us + "internal/app", ""},
		{"tests may use helpers", "segment/a_test.go", goleak, ""},
		{"code may not", "segment/a.go", goleak, "may not import"},
		{"a new package needs a row", "attic/a.go", "fmt", "give it a row"},
		{"so does one with only tests", "attic/a_test.go", "fmt", "give it a row"},
		{"testdata is skipped", "segment/testdata/a.go", natsGo, ""},
		{"a hidden folder is skipped", ".cache/a.go", natsGo, ""},
		{"another module has its own rules", "othermodule/sub/a.go", natsGo, ""},
	} {
		t.Run(tc.law, func(t *testing.T) {
			src := fmt.Sprintf("package p\n\nimport _ %q\n", tc.imports)
			expect(t, tc.want, wrongArrows(readModule(t, fstest.MapFS{
				tc.file:              {Data: []byte(src)},
				"othermodule/go.mod": {},
			})))
		})
	}
}

func TestAWrongDocIsSeen(t *testing.T) {
	const doc, noDoc = "// Package segment is" + mayChange + "\npackage segment\n", "package segment\n"
	for _, tc := range []struct {
		law, a, b string // segment/a.go and segment/b.go
		want      string // part of the fault, "" for none
	}{
		{"one doc", doc, noDoc, ""},
		{"none", noDoc, noDoc, "no package comment"},
		{"two", doc, doc, "in more than one file"},
		{"another's name", "// Package segments is.\npackage segment\n", noDoc, "must start"},
		{"separated by an empty line", "// Package segment is.\n\npackage segment\n", noDoc, "no package comment"},
		{"a directive is not a doc", "//go:build linux\npackage segment\n", doc, ""},
		{"it may change", "// Package segment is.\npackage segment\n", noDoc, "must end with"},
		{"said over two lines", strings.Replace(doc, "; it is ", "; it is\n// ", 1), noDoc, ""},
		{"said too late", strings.Replace(doc, "segment is;", "segment is. It is;", 1), noDoc, "must end with"},
		{"main is a command", "// Command segment is.\npackage main\n", "package main\n", ""},
		{"main is not a package", "// Package main is.\npackage main\n", "package main\n", "must start"},
	} {
		t.Run(tc.law, func(t *testing.T) {
			expect(t, tc.want, wrongDocs(readModule(t, fstest.MapFS{
				"segment/a.go":      {Data: []byte(tc.a)},
				"segment/b.go":      {Data: []byte(tc.b)},
				"segment/a_test.go": {Data: []byte("package segment_test\n")},
			})))
		})
	}
}

func expect(t *testing.T, want string, faults []string) {
	t.Helper()
	switch {
	case want == "" && len(faults) > 0:
		t.Errorf("got %q, want no fault", faults)
	case want != "" && (len(faults) != 1 || !strings.Contains(faults[0], want)):
		t.Errorf("got %q, want one fault with %q in it", faults, want)
	}
}

// wrongArrows returns a fault for each import that no row allows and for each
// package that has no row.
func wrongArrows(files []goFile) (faults []string) {
	rowless := map[string]bool{}
	for _, f := range files {
		row, ok := arrows[f.dir]
		if !ok && !rowless[f.dir] {
			rowless[f.dir] = true
			faults = append(faults, fmt.Sprintf("package %s is not in the table of arch_test.go: give it a row", f.dir))
		}
		if !ok {
			continue
		}
		if f.test {
			row = slices.Concat(row, forTests, forTestsOf[f.dir])
		}
		for _, imp := range f.imports {
			if !allowed(row, imp) {
				faults = append(faults, fmt.Sprintf("%s may not import %s: turn the arrow around or, if the "+
					"architecture has changed, change the row of %s in arch_test.go", f.path, imp, f.dir))
			}
		}
	}
	return faults
}

func allowed(row []string, imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	if !strings.Contains(first, ".") {
		return true // the standard library: its paths start with no host name
	}
	if ours, ok := strings.CutPrefix(imp, module+"/"); ok {
		return slices.Contains(row, ours) || slices.Contains(row, "...")
	}
	return slices.ContainsFunc(row, func(third string) bool {
		return imp == third || strings.HasPrefix(imp, third+"/")
	})
}

// mayChange ends the first sentence about a package that other programs can
// import but must not rely on.
const mayChange = "; it is internal to natsid and may change."

// inside reports whether other programs cannot import a package.
func inside(dir, name string) bool {
	return name == "main" || strings.HasPrefix(dir, "internal/") || strings.Contains(dir, "/internal/")
}

// wrongDocs returns a fault for each package whose comment is missing, is in
// several files, does not start as godoc wants it, or does not say that the
// package may change.
func wrongDocs(files []goFile) (faults []string) {
	names := map[string]string{} // by folder
	docs := map[string][]goFile{}
	for _, f := range files {
		if f.test {
			continue
		}
		names[f.dir] = f.name
		if f.doc != "" {
			docs[f.dir] = append(docs[f.dir], f)
		}
	}
	for dir, name := range names {
		start := "Package " + name + " "
		if name == "main" {
			start = "Command " + path.Base(path.Join("natsid", dir)) + " "
		}
		switch found := docs[dir]; {
		case len(found) == 0:
			faults = append(faults, fmt.Sprintf(
				"%s has no package comment: write // %s... above the package clause of one file", dir, start))
		case len(found) > 1:
			faults = append(faults, fmt.Sprintf(
				"%s has package comments in more than one file: keep the one in %s or in %s",
				dir, found[0].path, found[1].path))
		case !strings.HasPrefix(found[0].doc, start):
			faults = append(faults, fmt.Sprintf(
				"%s: the package comment must start with // %s...", found[0].path, start))
		case !inside(dir, name) && !slices.Contains(promised, dir):
			sentence, _, _ := strings.Cut(strings.ReplaceAll(found[0].doc, "\n", " ")+" ", ". ")
			if !strings.HasSuffix(sentence+".", mayChange) {
				faults = append(faults, fmt.Sprintf("%s: the first sentence of the package comment must end with %q, "+
					"since the package is not promised to other programs", found[0].path, mayChange))
			}
		}
	}
	slices.Sort(faults)
	return faults
}

// A goFile is one source file of the module, whatever system it is built for.
type goFile struct {
	path, dir string
	name      string // of the package
	doc       string // the package comment, without directives
	test      bool
	imports   []string
}

// readModule reads the Go files under fsys that belong to this module: those
// that the go command skips and those of modules further down do not.
func readModule(t *testing.T, fsys fs.FS) (files []goFile) {
	t.Helper()
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch {
		case p == ".":
		case strings.HasPrefix(d.Name(), "."), strings.HasPrefix(d.Name(), "_"), d.Name() == "testdata":
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.IsDir():
			if _, err := fs.Stat(fsys, path.Join(p, "go.mod")); err == nil {
				return fs.SkipDir
			}
		case path.Ext(p) == ".go":
			f, err := readFile(fsys, p)
			files = append(files, f)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func readFile(fsys fs.FS, p string) (goFile, error) {
	src, err := fs.ReadFile(fsys, p)
	if err != nil {
		return goFile{}, err
	}
	ast, err := parser.ParseFile(token.NewFileSet(), p, src, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return goFile{}, err
	}
	f := goFile{
		path: p,
		dir:  path.Dir(p),
		name: ast.Name.Name,
		doc:  ast.Doc.Text(),
		test: strings.HasSuffix(p, "_test.go"),
	}
	for _, spec := range ast.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return goFile{}, fmt.Errorf("%s: %w", p, err)
		}
		f.imports = append(f.imports, imp)
	}
	return f, nil
}
