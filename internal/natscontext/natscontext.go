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

// read has the fields that natsid reads, files those of them that name files. refused has the fields that natsid cannot
// obey: nsc names a user in nsc's store, and tls_first wants TLS before the server's first line.
var (
	read = []string{"url", "user", "password", "token", "creds", "nkey", "cert", "key", "ca", "inbox_prefix",
		"jetstream_domain", "jetstream_api_prefix"}
	files   = []string{"ca", "cert", "creds", "key", "nkey"}
	refused = []string{"nsc", "user_jwt", "tls_first", "socks_proxy", "windows_cert_store"}
)

// Read returns the fields of a context that natsid reads. name is that of a context, or of a file that ends in .json.
// In names of files ~ and variables are replaced. Errors contain no secret.
func Read(name string) (map[string]string, error) {
	text, err := load(name)
	if err != nil {
		return nil, err
	}
	var all map[string]any
	fault := json.Unmarshal(text, &all) // not returned: it may quote a secret
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

// load returns the text of a context.
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

// directory returns where the nats command keeps contexts.
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

// expand replaces variables in the name of a file, and ~ by the home directory, as the nats command does.
func expand(file string) string {
	file = os.ExpandEnv(file)
	rest, ok := strings.CutPrefix(file, "~")
	if home, err := os.UserHomeDir(); ok && err == nil {
		return home + rest
	}
	return file
}
