// Package natscontext reads the contexts of the nats command: named sets of settings in JSON files (ADR-21).
package natscontext

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A Context is what a file says about reaching NATS. Names of files are expanded: they have no ~ and no variables.
type Context struct {
	URL         string `json:"url"` // of one server or several
	User        string `json:"user"`
	Password    string `json:"password"`
	Token       string `json:"token"`
	Creds       string `json:"creds"` // file
	NKey        string `json:"nkey"`  // file of a seed
	Cert        string `json:"cert"`  // file
	Key         string `json:"key"`   // file
	CA          string `json:"ca"`    // file
	InboxPrefix string `json:"inbox_prefix"`
	JSDomain    string `json:"jetstream_domain"`
	JSPrefix    string `json:"jetstream_api_prefix"`

	// Fields that natsid refuses.
	NSC        string `json:"nsc"` // the user in nsc's store; --creds names its file instead
	JWT        string `json:"user_jwt"`
	TLSFirst   bool   `json:"tls_first"` // TLS before the server's greeting
	SocksProxy string `json:"socks_proxy"`
	CertStore  string `json:"windows_cert_store"`
}

// Read returns a context: that of a name, or of a file whose name ends in .json. Its errors say nothing secret.
func Read(name string) (Context, error) {
	var c Context
	text, err := load(name)
	if err != nil {
		return c, err
	}
	if json.Unmarshal(text, &c) != nil { // its error may show what is secret
		return c, fmt.Errorf("context %q is not what the nats command writes: `nats context validate` names the fault",
			name)
	}
	if err := c.complete(); err != nil {
		return c, fmt.Errorf("context %q: %w", name, err)
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

// complete expands the names of files, and refuses what natsid cannot do.
func (c *Context) complete() error {
	for field, used := range map[string]bool{
		"nsc": c.NSC != "", "user_jwt": c.JWT != "", "tls_first": c.TLSFirst,
		"socks_proxy": c.SocksProxy != "", "windows_cert_store": c.CertStore != "",
	} {
		if used {
			return fmt.Errorf("natsid cannot do what its %q says; remove it there, "+
				"or give the settings as flags", field)
		}
	}
	files := map[string]*string{"creds": &c.Creds, "nkey": &c.NKey, "cert": &c.Cert, "key": &c.Key, "ca": &c.CA}
	for _, field := range slices.Sorted(maps.Keys(files)) {
		file := files[field]
		if strings.Contains(*file, "://") {
			return fmt.Errorf("natsid cannot read its %q, which is not a file; write it into one and give that",
				field)
		}
		*file = expand(*file)
	}
	return nil
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
