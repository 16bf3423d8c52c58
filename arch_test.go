package main_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
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

// A floor is packages of one level, with the packages that each may import besides the standard library.
type floor struct {
	name, says string
	rows       map[string][]string
}

// floors are all packages, from the top to the bottom. A package imports those of its own floor and of the floors
// below. docs/architecture.md shows them. What follows from the rows: the cores do not know NATS, only
// internal/ops/metrics knows prometheus, only internal/natsembed, e2e and conformance know nats-server, and only
// internal/stores/mysqlstore knows a driver of a database.
var floors = []floor{
	{"commands", "the command line, and tests of whole services", map[string][]string{
		".": {"internal/cli"},
		"internal/cli": {"internal/app", "client", "format", "stamp", "internal/leaf", "internal/stage", "subjects",
			"internal/holder", "internal/supervise",
			"internal/wire", "snowflake", "workerid", "kvregistry", "internal/jitter",
			"internal/registry/era", "internal/registry/lineage", "internal/registry/natsbus",
			"internal/registry/buckets",
			"internal/registry/rights", "internal/ops/fleetview", "internal/ops/grants",
			"internal/ops/metrics", "internal/ops/monitor", "internal/natsembed", "internal/testbed", "segment",
			"internal/stores/kvstore", "internal/stores/mysqlstore", "internal/configfile", kong, natsGo},
		"e2e":              {"internal/app", "internal/testbed", "client", "number", "subjects", natsGo},
		"e2e/tests":        {natsServer, natsJWT, nkeys}, // test files only
		"internal/testbed": {"internal/app", "internal/natsembed", "client", "subjects", "internal/wire", natsGo},
		"proof/conformance": {"proof/conformance/internal/adapter", "proof/conformance/internal/contract",
			"proof/conformance/internal/rig", "proof/conformance/internal/scenarios", "subjects"},
		"proof/conformance/adapters/go":        {"proof/conformance/internal/goadapter"},
		"proof/conformance/internal/adapter":   {"proof/conformance/internal/contract"},
		"proof/conformance/internal/contract":  {"subjects"},
		"proof/conformance/internal/goadapter": {"client", "snowflake", "subjects", "internal/wire", natsGo},
		"proof/conformance/internal/rig": {"internal/cli", "subjects", "internal/wire", "internal/testkit/process",
			natsGo, natsServer},
		"proof/conformance/internal/scenarios": {"proof/conformance/internal/adapter",
			"proof/conformance/internal/contract", "proof/conformance/internal/rig",
			"proof/conformance/internal/vectors", "client", "snowflake", "subjects", "internal/testkit/natsproxy"},
		"proof/conformance/internal/vectors": {"proof/conformance/internal/goadapter",
			"proof/conformance/internal/rig", "client", "format", "snowflake", "subjects", natsGo},
		"proof/conformance/internal/vectors/make": {"proof/conformance/internal/vectors"},
		"proof/faults/holder":                     {"internal/holder", "snowflake", "subjects", natsGo},
		"proof/faults": {"client", "subjects", "internal/wire", "internal/testkit/freeport", "internal/testkit/ledger",
			"internal/testkit/linear", "internal/testkit/mysqltest", "internal/testkit/natsconf",
			"internal/testkit/natsproxy", "internal/testkit/overload", "internal/testkit/process", natsGo},
	}},
	{"composition", "one natsid: its settings, start and stop; it connects the rooms below", map[string][]string{
		"internal/app": {"subjects", "internal/wire", "snowflake", "internal/issuer", "segment", "workerid",
			"kvregistry", "worker",
			"internal/stores/kvstore", "internal/stores/mysqlstore", "internal/registry/era",
			"internal/registry/lineage", "internal/registry/natsbus", "internal/registry/buckets",
			"internal/registry/rights", "internal/fleet", "internal/ops/fleetview", "internal/ops/grants",
			"internal/ops/metrics", "internal/ops/monitor", "internal/ops/page", "internal/configfile",
			"internal/durable", "internal/jitter", "internal/loglimit", "internal/natscontext",
			"internal/natsembed", natsGo, backoff},
	}},
	{"doors and operation", "requests come in, messages are stamped, operators look", map[string][]string{
		"worker": {"subjects", "internal/wire", "internal/registry/natsbus", "segment", "snowflake",
			"internal/issuer", "internal/jitter", natsGo},
		"number": {"internal/holder", "snowflake", "subjects", natsGo},
		"internal/holder": {"client", "internal/issuer", "snowflake", "subjects", "internal/wire", "workerid",
			"kvregistry", "internal/durable", "internal/jitter", "internal/registry/buckets",
			"internal/registry/lineage", "internal/registry/natsbus", "internal/registry/rights", natsGo},
		"internal/leaf":  {"client", "snowflake", "subjects", "internal/wire"},
		"internal/stage": {"client", "stamp", "internal/registry/buckets", "internal/jitter", natsGo},
		"internal/ops/fleetview": {"internal/registry/natsbus", "segment", "subjects", "internal/wire", "workerid",
			natsGo},
		"internal/ops/grants": {"internal/jitter", "internal/registry/buckets", "segment", "workerid", natsGo},
		"internal/ops/metrics": {"segment", "internal/issuer", "snowflake", "subjects", "internal/wire", "workerid",
			"worker", "internal/stage", prometheus},
		"internal/ops/monitor": {"internal/configfile"},
		"internal/ops/page": {"subjects", "internal/wire", "snowflake", "segment", "workerid",
			"internal/ops/fleetview"},
	}},
	{"stores and fleet", "where tags are kept, and what workers agree on", map[string][]string{
		"internal/stores/kvstore": {"segment", "internal/registry/era",
			"internal/registry/lineage", "internal/registry/buckets", "internal/jitter", backoff},
		"internal/stores/mysqlstore": {"segment", "internal/configfile", mysqlDriver},
		"internal/fleet":             {"segment", "subjects", "internal/wire", "internal/jitter", natsGo},
	}},
	{"registry", "the buckets, and whether they are those of before", map[string][]string{
		"internal/registry/buckets": {"internal/jitter", natsGo},
		"internal/registry/rights":  {"subjects", "internal/wire", "internal/registry/buckets", natsGo, natsJWT},
		"internal/registry/era":     {"internal/registry/buckets"},
		"internal/registry/lineage": {"segment", "internal/registry/era", "internal/registry/buckets",
			"internal/durable", "internal/jitter"},
		"internal/registry/natsbus": {"subjects", "internal/wire", natsGo},
		"kvregistry":                {"workerid", "internal/registry/buckets", "internal/jitter", natsGo},
	}},
	{"cores", "the laws of uniqueness, in virtual time; the wire, and clients of users", map[string][]string{
		"segment":               {"internal/jitter"},
		"segment/segmenttest":   {"segment"},
		"segment/simulation":    {}, // test files only
		"format":                {"snowflake", "subjects"},
		"snowflake":             {"subjects"},
		"internal/issuer":       {"snowflake"},
		"workerid":              {"snowflake", "internal/durable", "internal/jitter"},
		"workerid/workeridtest": {"workerid", "snowflake"},
		"subjects":              {},
		"internal/wire":         {"subjects"},
		"client":                {"subjects", natsGo},
		"client/clienttest":     {"client", "subjects"},
		"stamp":                 {"client", "subjects", natsGo},
	}},
	{"leaves", "small packages that know nothing of natsid", map[string][]string{
		"internal/configfile":  {yaml},
		"internal/durable":     {system, flock},
		"internal/jitter":      {backoff},
		"internal/loglimit":    {},
		"internal/natscontext": {},
		"internal/natsembed":   {"internal/jitter", natsServer},
		"internal/supervise":   {system},
	}},
	{"test kits", "for tests, of any floor", map[string][]string{
		"internal/testkit/exampletb": {},
		"internal/testkit/freeport":  {},
		"internal/testkit/frozen": {"subjects", "internal/wire", "snowflake", "segment", "workerid",
			"internal/ops/fleetview", "internal/ops/page"},
		"internal/testkit/ledger":    {},
		"internal/testkit/linear":    {porcupine},
		"internal/testkit/mutant":    {},
		"internal/testkit/mysqltest": {"internal/testkit/freeport", "internal/testkit/tcpproxy", mysqlDriver},
		"internal/testkit/natsconf":  {},
		"internal/testkit/natsproxy": {"internal/testkit/tcpproxy"},
		"internal/testkit/natstest":  {"internal/natsembed", "subjects", natsGo, goleak},
		"internal/testkit/overload":  {"internal/testkit/ledger", "subjects", natsGo},
		"internal/testkit/process":   {},
		"internal/testkit/raced":     {},
		"internal/testkit/schedules": {"internal/testkit/raced"},
		"internal/testkit/steps":     {},
		"internal/testkit/tcpproxy":  {},
		"internal/testkit/wait":      {},
	}},
}

// arrows are the rows of all floors.
var arrows = func() map[string][]string {
	all := map[string][]string{}
	for _, f := range floors {
		maps.Copy(all, f.rows)
	}
	return all
}()

func TestNoArrowLeadsToAFloorAbove(t *testing.T) {
	level := map[string]int{}
	for i, f := range floors {
		for dir := range f.rows {
			level[dir] = i
		}
	}
	for dir, row := range arrows {
		for _, imp := range row {
			if to, ours := level[imp]; ours && to < level[dir] && floors[level[dir]].name != "test kits" {
				t.Errorf("%s is on the floor %q, and imports %s of the floor %q above",
					dir, floors[level[dir]].name, imp, floors[to].name)
			}
		}
	}
}

// internal/testbed is no kit: `natsid test-server` is made of it.
func TestNoTestKitShips(t *testing.T) {
	ships := []string{"."}
	for i := 0; i < len(ships); i++ {
		for _, imp := range arrows[ships[i]] {
			if strings.HasPrefix(imp, "internal/testkit/") || strings.HasSuffix(imp, "test") {
				t.Errorf("%s is part of the command, and imports %s", ships[i], imp)
			}
			if !slices.Contains(ships, imp) {
				ships = append(ships, imp)
			}
		}
	}
}

// forTests is what test files may import on top of their package's row. A
// server for a test comes from internal/natsembed, e2e or internal/testkit/mysqltest.
var forTests = []string{"...", goleak, natsGo, mysqlDriver}

// forTestsOf is what the test files of one package may import on top of that.
var forTestsOf = map[string][]string{
	".": {yaml}, // rules of alerts

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
		want               string // part of the fault
	}{
		{"a neighbour in name only", "worker/a.go", natsGo + "-fork", "may not import"},
		{"a row is for one package alone", "worker/a.go", us + "internal/stores/kvstore", "may not import"},
		{"the cores do not know NATS", "segment/a.go", natsGo, "may not import"},
		{"a file for one system counts", "segment/a_windows.go", natsGo, "may not import"},
		{"in tests, too", "worker/a_test.go", prometheus + "/client_golang/prometheus", "may not import"},
		{"code may not", "segment/a.go", goleak, "may not import"},
		{"a new package needs a row", "attic/a.go", "fmt", "give it a row"},
		{"so does one with only tests", "attic/a_test.go", "fmt", "give it a row"},
	} {
		t.Run(tc.law, func(t *testing.T) {
			src := fmt.Sprintf("package p\n\nimport _ %q\n", tc.imports)
			expect(t, tc.want, wrongArrows(readModule(t, fstest.MapFS{
				tc.file: {Data: []byte(src)},
			})))
		})
	}
}

func TestAWrongDocIsSeen(t *testing.T) {
	const doc, noDoc = "// Package segment is" + mayChange + "\npackage segment\n", "package segment\n"
	for _, tc := range []struct {
		law, a, b string // segment/a.go and segment/b.go
		want      string // part of the fault
	}{
		{"none", noDoc, noDoc, "no package comment"},
		{"two", doc, doc, "in more than one file"},
		{"another's name", "// Package segments is.\npackage segment\n", noDoc, "must start"},
		{"separated by an empty line", "// Package segment is.\n\npackage segment\n", noDoc, "no package comment"},
		{"it may change", "// Package segment is.\npackage segment\n", noDoc, "must end with"},
		{"said too late", strings.Replace(doc, "segment is;", "segment is. It is;", 1), noDoc, "must end with"},
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
	if len(faults) != 1 || !strings.Contains(faults[0], want) {
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
