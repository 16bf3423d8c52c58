package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/natsid/natsid/proof/conformance/internal/adapter"
)

// An adapterOf is a descriptor: how to build and start an adapter, in the folder of its file.
type adapterOf struct {
	Build   []string // run once; none if there is nothing to build
	Adapter []string
	Profile string // "" is what the adapter says
	dir     string // "" is the runner's
}

// own are the adapters of this repository. One without its file has not been built, and is left out.
var own = []struct{ file, descriptor string }{
	{"conformance/adapters/go/main.go", "conformance/adapters/go/conformance.json"},
	{"clients/typescript/dist/index.js", "clients/typescript/conformance/conformance.json"},
	{"conformance/adapters/c/adapter.c", "conformance/adapters/c/conformance.json"},
}

func readDescriptor(path string) (a adapterOf, err error) {
	file, err := os.ReadFile(path)
	if err != nil {
		return a, err
	}
	d := json.NewDecoder(bytes.NewReader(file))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		return a, fmt.Errorf("%s: %w", path, err)
	}
	if len(a.Adapter) == 0 {
		return a, fmt.Errorf("%s: adapter is missing", path)
	}
	a.dir = filepath.Dir(path)
	return a, nil
}

// ownAdapters returns the adapters of this repository that are there.
func ownAdapters() (all []adapterOf, err error) {
	for _, o := range own {
		if _, err := os.Stat(o.file); err != nil {
			continue
		}
		a, err := readDescriptor(o.descriptor)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	if len(all) == 0 {
		return nil, errors.New("no adapter: give -adapter or -descriptor, or run this in natsid's folder")
	}
	return all, nil
}

func (a adapterOf) build(ctx context.Context) error {
	if len(a.Build) == 0 {
		return nil
	}
	cmd := exec.CommandContext(ctx, a.Build[0], a.Build[1:]...)
	cmd.Dir = a.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(a.Build, " "), err, out)
	}
	return nil
}

func (a adapterOf) command() adapter.Command { return adapter.Command{Args: a.Adapter, Dir: a.dir} }
