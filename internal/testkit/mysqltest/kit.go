package mysqltest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing/fstest"
)

// A kit is the programs of one installed database system.
type kit struct {
	server  string // path of mariadbd or mysqld
	install string // path of mariadb-install-db; "" for MySQL, which needs none

	// template returns a new data directory. It is made once per process and kept in memory (26 MB): each server takes
	// a copy, and no folder is left behind when the process ends.
	template func() (fs.FS, error)
}

// findKit looks for a database system, once per process.
var findKit = sync.OnceValues(func() (*kit, error) {
	server, err := find("mariadbd", "mysqld")
	if err != nil {
		return nil, err
	}
	k := &kit{server: server}
	k.template = sync.OnceValues(k.makeTemplate)
	version, err := exec.Command(server, "--no-defaults", "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", server, err)
	}
	if bytes.Contains(version, []byte("MariaDB")) { // which may be called mysqld, too
		k.install, err = find("mariadb-install-db", "mysql_install_db")
	}
	return k, err
})

// beyondPath is where systems put servers that are not on the PATH of ordinary users.
var beyondPath = []string{"/usr/sbin", "/usr/libexec", "/usr/local/sbin", "/usr/bin"}

// find returns the path of the first program in names that is installed.
func find(names ...string) (string, error) {
	for _, name := range names {
		if p, err := exec.LookPath(name); err == nil {
			return filepath.Abs(p)
		}
		for _, dir := range beyondPath {
			if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return p, nil
			}
		}
	}
	return "", fmt.Errorf("no %s found", strings.Join(names, " or "))
}

func (k *kit) makeTemplate() (_ fs.FS, err error) {
	dir, err := os.MkdirTemp("", "mdb")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	data := filepath.Join(dir, "data")
	var cmd *exec.Cmd
	if k.install != "" {
		cmd = exec.Command(k.install, append(options(data),
			"--auth-root-authentication-method=normal", "--skip-test-db", "--tmpdir="+dir)...)
	} else {
		cmd = exec.Command(k.server, append(options(data), "--initialize-insecure")...)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, tail(out))
	}
	return load(data)
}

// load reads a whole directory into memory.
func load(dir string) (fs.FS, error) {
	files := fstest.MapFS{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		file := &fstest.MapFile{Mode: 0o700 | fs.ModeDir}
		if !d.IsDir() {
			file.Mode = 0o600
			file.Data, err = os.ReadFile(p)
		}
		files[filepath.ToSlash(name)] = file
		return err
	})
	return files, err
}

// options returns the options of both making a data directory and serving it: a small server that reads no
// configuration of this machine. Options that one of the two systems, or some version, does not know are --loose.
func options(data string) []string {
	args := []string{
		"--no-defaults", // must come first
		"--datadir=" + data,
		"--skip-name-resolve",
		"--skip-log-bin",
		"--sync-binlog=0",
		"--performance-schema=OFF",
		"--innodb-buffer-pool-size=32M",
		"--loose-innodb-log-file-size=8M",
		"--loose-innodb-use-native-aio=OFF", // containers may forbid it
		"--innodb-buffer-pool-dump-at-shutdown=OFF",
		"--innodb-buffer-pool-load-at-startup=OFF",
		"--innodb-flush-log-at-trx-commit=1",
	}
	if os.Getuid() == 0 { // as in CI: servers refuse to run as root by default
		args = append(args, "--user=root")
	}
	return args
}

// tail returns the end of a log, enough to see why a server ended.
func tail(log []byte) []byte {
	const most = 3000
	return log[max(0, len(log)-most):]
}
