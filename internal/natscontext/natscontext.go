// Package natscontext reads the contexts of the nats command: named sets of settings in JSON files (ADR-21).
package natscontext

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// read are the fields that natsid reads, files those that name files, and refused those that it cannot do: nsc is the
// user in nsc's store, and with tls_first TLS begins before the server's greeting.
var (
	read = []string{"url", "user", "password", "token", "creds", "nkey", "cert", "key", "ca", "inbox_prefix",
		"jetstream_domain", "jetstream_api_prefix"}
	files   = []string{"ca", "cert", "creds", "key", "nkey"}
	refused = []string{"nsc", "user_jwt", "tls_first", "socks_proxy", "windows_cert_store"}
)

// Read returns the fields of a context about reaching NATS: that of a name, or of a file whose name ends in .json.
// Names of files are expanded: they have no ~ and no variables. Its errors say nothing secret.
func Read(name string) (map[string]string, error) {
	text, err := load(name)
	if err != nil {
		return nil, err
	}
	var all map[string]any
	fault := json.Unmarshal(text, &all) // it may show what is secret
	c := map[string]string{}
	for _, field := range read {
		text, isText := all[field].(string)
		if text != "" {
			c[field] = text
		} else if !isText && all[field] != nil {
			fault = errors.ErrUnsupported
		}
	}
	if fault != nil {
		return nil, fmt.Errorf("context %q is not what the nats command writes: "+
			"`nats context validate` names the fault", name)
	}
	for _, field := range refused {
		if v := all[field]; v != nil && v != "" && v != false {
			return nil, fmt.Errorf("context %q: natsid cannot do what its %q says; remove it there, "+
				"or give the settings as flags", name, field)
		}
	}
	for _, field := range files {
		if strings.Contains(c[field], "://") {
			return nil, fmt.Errorf("context %q: natsid cannot read its %q, which is not a file; write it into one and "+
				"give that", name, field)
		}
		if c[field] != "" {
			c[field] = expand(c[field])
		}
	}
	return c, nil
}

// load returns the file of a context.
func load(name string) ([]byte, error) {
	if strings.HasSuffix(name, ".json") {
		if text, err := os.ReadFile(name); err == nil || !errors.Is(err, fs.ErrNotExist) {
			return text, err
		}
	}
	dir, err := directory()
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if errors.Is(err, fs.ErrNotExist) || name != filepath.Base(name) {
		return nil, fmt.Errorf("there is no context %q in %s; `nats context ls` lists them", name, dir)
	}
	return text, err
}

// directory is where the nats command keeps contexts.
func directory() (string, error) {
	root := os.Getenv("XDG_CONFIG_HOME")
	if root == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("contexts are not found: %w", err)
		}
		root = filepath.Join(home, ".config")
	}
	return filepath.Join(root, "nats", "context"), nil
}

// expand replaces variables, and ~ by the home directory, as the nats command does.
func expand(file string) string {
	file = os.ExpandEnv(file)
	rest, ok := strings.CutPrefix(file, "~")
	if home, err := os.UserHomeDir(); ok && err == nil {
		return home + rest
	}
	return file
}
