package mysqlstore_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/natsid/natsid/internal/stores/mysqlstore"
	"github.com/natsid/natsid/internal/testkit/mysqltest"
)

// certify writes a new certificate, of a server, a client and an authority at once, over an old one.
func certify(t *testing.T, cert, key string) {
	t.Helper()
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &pair.PublicKey, pair)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(pair)
	if err != nil {
		t.Fatal(err)
	}
	write(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWhatALoginIsMadeOfCanBeRenewed(t *testing.T) {
	db := mysqltest.Start(t)
	if table, err := (mysqlstore.Login{DSN: db.SocketDSN()}).Open(t.Context()); err != nil {
		t.Errorf("through the socket: %v", err)
	} else {
		table.Close()
	}
	dir := t.TempDir()
	cert, key, file := filepath.Join(dir, "cert"), filepath.Join(dir, "key"), filepath.Join(dir, "dsn")
	certify(t, cert, key)
	otherCert, otherKey := filepath.Join(dir, "other"), filepath.Join(dir, "otherkey")
	certify(t, otherCert, otherKey)
	type login = mysqlstore.Login
	plain := db.DSN()
	if _, err := (login{DSN: plain, CA: cert}).Open(t.Context()); !errors.Is(err, mysqlstore.ErrRefused) {
		t.Errorf("TLS with a server that has none: %v", err)
	}
	dsn := db.Secure(cert, key)
	for fault, l := range map[string]login{
		"no certificate":             {DSN: dsn, CA: cert},
		"another's certificate":      {DSN: dsn, CA: cert, Cert: otherCert, Key: otherKey},
		"another authority":          {DSN: dsn, CA: otherCert, Cert: cert, Key: key},
		"the system's authorities":   {DSN: dsn + "?tls=true"},
		"no TLS":                     {DSN: dsn},
		"a key of another":           {DSN: dsn, CA: cert, Cert: cert, Key: otherKey},
		"no file":                    {DSN: dsn, CA: cert + "x"},
		"a file without certificate": {DSN: dsn, CA: key},
		"TLS that checks nobody":     {DSN: dsn + "?tls=skip-verify", CA: cert, Cert: cert, Key: key},
	} {
		_, err := l.Open(t.Context())
		if !errors.Is(err, mysqlstore.ErrRefused) && fault != "another's certificate" ||
			err == nil || strings.Contains(err.Error(), "mysqltest-password") {
			t.Errorf("%s: %v, want ErrRefused without the password", fault, err)
		}
	}
	write(t, file, dsn+"\n")
	table, err := login{DSN: dsn, File: file, CA: cert, Cert: cert, Key: key}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	tags := func() (err error) {
		for range 3 { // the pool notices lost connections by using them
			if _, err = table.AllRows(t.Context()); err == nil {
				return nil
			}
		}
		return err
	}
	if err := tags(); err != nil {
		t.Fatal(err)
	}

	// Another database in the file is not taken up: its marks would be others.
	write(t, file, strings.Replace(db.SetPassword(dsn, "new"), db.Addr(), "127.0.0.1:1", 1))
	certify(t, cert, key)
	db.Stop()
	db.Run()
	if err := tags(); err != nil {
		t.Errorf("with a renewed password and renewed certificates: %v", err)
	}
	write(t, file, "half a line")
	db.Stop()
	db.Run()
	if err := tags(); err == nil || strings.Contains(fmt.Sprint(err), "new@") {
		t.Errorf("with the password of the start, which is none any more: %v", err)
	}
}
