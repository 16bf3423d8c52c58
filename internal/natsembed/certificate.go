package natsembed

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// A Certificate is the server's certificate for its clients. [Host.Tend] loads renewed files. All methods are safe
// for concurrent use.
type Certificate struct {
	files [2]string // the chain and the key, in PEM
	now   atomic.Pointer[loaded]
}

// loaded is the last usable content of the files.
type loaded struct {
	texts       [2][]byte
	certificate tls.Certificate
}

// OpenCertificate reads a chain of certificates and the key of the first one, both in PEM.
func OpenCertificate(certFile, keyFile string) (*Certificate, error) {
	c := &Certificate{files: [2]string{certFile, keyFile}}
	_, err := c.renew()
	return c, err
}

// renew reads the files again, and reports whether they were renewed. After an error the server keeps its
// certificate.
func (c *Certificate) renew() (renewed bool, err error) {
	var next loaded
	for i, file := range c.files {
		if next.texts[i], err = os.ReadFile(file); err != nil {
			return false, err
		}
	}
	if old := c.now.Load(); old != nil && bytes.Equal(old.texts[0], next.texts[0]) &&
		bytes.Equal(old.texts[1], next.texts[1]) {
		return false, nil
	}
	next.certificate, err = tls.X509KeyPair(next.texts[0], next.texts[1])
	if err != nil { // or one of the files is renewed and the other is not yet
		return false, fmt.Errorf("%s and %s: %w", c.files[0], c.files[1], err)
	}
	c.now.Store(&next)
	return true, nil
}

// tend calls renew and logs its outcome.
func (c *Certificate) tend(log *slog.Logger) {
	renewed, err := c.renew()
	until := c.now.Load().certificate.Leaf.NotAfter
	if err != nil {
		log.Warn("the renewed certificate of the embedded NATS server cannot be used; the last one stays until it can",
			"error", err)
	}
	if renewed {
		log.Info("the certificate of the embedded NATS server was renewed", "valid_until", until)
	}
	if time.Now().After(until) {
		log.Error("the certificate of the embedded NATS server has expired, so clients do not connect; renew its files",
			"valid_until", until, "files", c.files)
	}
}

func (c *Certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return &c.now.Load().certificate, nil
}

// hostFor returns the host, if the certificate is valid for it, or else a host for which it is; "" if there is none.
func (c *Certificate) hostFor(host string) string {
	leaf := c.now.Load().certificate.Leaf
	if leaf.VerifyHostname(host) == nil {
		return host
	}
	for _, name := range leaf.DNSNames {
		if !strings.HasPrefix(name, "*") {
			return name
		}
	}
	for _, ip := range leaf.IPAddresses {
		return ip.String()
	}
	return ""
}
