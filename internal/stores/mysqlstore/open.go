// Package mysqlstore keeps tags in Leaf's own table, leaf_alloc, in MySQL or MariaDB; it is internal to natsid and may
// change. It is the only package that knows the driver.
//
// Sessions are autocommit, strict and in UTC, and wait for a lock for 1 s at most. One process has at most 40
// statements under way in its database. Every change of max_id is one conditional UPDATE, so no transaction or lock
// lasts longer than a statement. The collation of biz_tag may find a row whose name differs from the requested tag,
// for example in case: then the error is a [segment.NameError].
package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/natsid/natsid/segment"
)

// ErrRefused is returned by Open when retrying cannot help: the DSN is malformed, or the server refuses its user or
// database, or the table is not as natsid needs it.
var ErrRefused = errors.New("mysqlstore: refused")

// maxConns bounds the statements that one process has under way in one database: 36 loads, and some for polls and
// administrators.
const maxConns = 40

// Open connects to the database and creates the table if there is none. A table that exists is used as it is, with a
// column description or desc. The error wraps [ErrRefused] if retrying cannot help. No error shows the password.
func (l Login) Open(ctx context.Context) (*Table, error) {
	cfg, err := parse(l.DSN)
	if err == nil {
		err = l.check(cfg)
	}
	if err == nil {
		err = cfg.Apply(mysql.BeforeConnect(l.renew))
	}
	if err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(session(cfg))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(maxConns)
	db.SetConnMaxIdleTime(time.Minute)
	schema, err := openSchema(ctx, db, cfg.DBName)
	if err == nil {
		err = checkRights(ctx, db)
	}
	if err != nil {
		db.Close()
		if denied := lacking(err); denied != nil {
			err = denied
		}
		switch _, denied := errors.AsType[*segment.RightError](err); {
		case isAccessDenied(err):
			err = fmt.Errorf("%w: %w: check the user, password and database of the DSN, and from where the server "+
				"lets that user in", ErrRefused, err)
		case denied || lacksTLS(err):
			err = fmt.Errorf("%w: %w", ErrRefused, err)
		}
		return nil, err
	}
	return &Table{db: db, schema: schema}, nil
}

// checkRights returns an error if the user lacks a right without which no range can be loaded. It does not check
// INSERT, which only new tags need. It returns nil for a server that takes no writes at the moment.
func checkRights(ctx context.Context, db *sql.DB) error {
	for _, statement := range []string{
		"SELECT biz_tag, max_id, step, update_time FROM leaf_alloc WHERE 1 = 0",
		"UPDATE leaf_alloc SET max_id = max_id WHERE 1 = 0",
	} {
		if _, err := db.ExecContext(ctx, statement); lacking(err) != nil {
			return err
		}
	}
	return nil
}

// session sets the parameters that every connection needs, whatever the server's defaults and the DSN say. Loads that
// were given up must not leave statements in the server that wait for a lock. A value that does not fit a column must
// be an error. No limit of a query's rows may hide a row.
//
// An acknowledged change must be committed: with completion_type CHAIN the end of a transaction would begin another
// one on the same connection. All later statements on that connection would keep their rows locked, and could be
// rolled back.
func session(cfg *mysql.Config) *mysql.Config {
	cfg.ParseTime, cfg.Loc = true, time.UTC
	cfg.ClientFoundRows = false  // an UPDATE that changed nothing must say so
	cfg.InterpolateParams = true // one round trip per statement
	cfg.Logger = &mysql.NopLogger{}
	// Drop the connection to a server that has become read-only: it is no longer the primary, and the address may lead
	// to another one by now.
	cfg.RejectReadOnly = true
	cfg.Timeout = cmp.Or(cfg.Timeout, time.Second)
	if cfg.Params == nil {
		cfg.Params = make(map[string]string)
	}
	for name, value := range map[string]string{
		"autocommit":               "1",
		"completion_type":          "'NO_CHAIN'",
		"sql_select_limit":         "18446744073709551615", // no limit
		"sql_mode":                 "'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION'",
		"innodb_lock_wait_timeout": "1",
		"lock_wait_timeout":        "1",
		"time_zone":                "'+00:00'",
	} {
		cfg.Params[name] = value
	}
	return cfg
}

// parse reads a DSN. Its error quotes nothing of the DSN.
func parse(dsn string) (*mysql.Config, error) {
	cfg, err := mysql.ParseDSN(dsn)
	// The parser's own error may quote a password. The parser takes everything after the last slash as the database,
	// even the end of a password that has a slash in it.
	if err != nil || cfg.DBName == "" || strings.Contains(dsn[strings.LastIndexByte(dsn, '/'):], "@") {
		return nil, fmt.Errorf("%w: the DSN must be user:password@tcp(host:port)/database", ErrRefused)
	}
	return cfg, nil
}

// Check returns nil or an error that states the form of a DSN and quotes nothing of it.
func Check(dsn string) error {
	_, err := parse(dsn)
	return err
}

// Redact returns a DSN without its password, for logs.
func Redact(dsn string) string {
	cfg, err := parse(dsn)
	if err != nil {
		return "a malformed DSN"
	}
	return fmt.Sprintf("%s@%s(%s)/%s", cfg.User, cfg.Net, cfg.Addr, cfg.DBName)
}
