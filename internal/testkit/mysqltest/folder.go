package mysqltest

import (
	"context"
	"os"
	"path/filepath"

	"github.com/go-sql-driver/mysql"
)

// A folder is all that a private server has on disk. Its path is short: that of a unix socket has room for 107 bytes.
type folder string

func (f folder) data() string    { return filepath.Join(string(f), "data") }
func (f folder) socket() string  { return filepath.Join(string(f), "s") }
func (f folder) pid() string     { return filepath.Join(string(f), "pid") }
func (f folder) logPath() string { return filepath.Join(string(f), "log") }

// log returns the end of what the server's processes wrote, present and former ones.
func (f folder) log() []byte {
	text, _ := os.ReadFile(f.logPath())
	return tail(text)
}

// asRoot runs statements with all rights on the server that runs on the folder: root is let in through the socket.
func (f folder) asRoot(ctx context.Context, statements ...string) error {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr = "root", "unix", f.socket()
	db, err := openDB(cfg)
	if err != nil {
		return err
	}
	defer db.Close()
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
