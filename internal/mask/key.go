package mask

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"

	"github.com/natsid/natsid/internal/durable"
)

// keyVersion is the first word of a key file. The others are name, fingerprint and secret, in hexadecimal digits.
const keyVersion = "natsid-mask-key-1"

var validName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

// A Key is a secret with a name. Package fmt, slog and encoders of JSON and text show its name and fingerprint
// instead of the secret. New refuses the zero value.
type Key struct {
	name string
	*sealed
}

// A sealed secret is two pointers away from a Key: in a Key that is an unexported field of another struct, package fmt
// does not ask Format, and follows one pointer if the verb does not fit.
type sealed struct{ secret *[32]byte }

func newKey(name string) Key { return Key{name, &sealed{new([32]byte)}} }

// NewKey returns a new random key. A name is 1 to 32 of a-z, 0-9 and '-', without '-' in front.
func NewKey(name string) (Key, error) {
	if !validName.MatchString(name) {
		return Key{}, fmt.Errorf("mask: a key cannot be named %.40q: a name is 1 to 32 of a-z, 0-9 and '-'", name)
	}
	k := newKey(name)
	_, err := rand.Read(k.secret[:])
	return k, err
}

// Name returns the name of the key, "" for the zero value.
func (k Key) Name() string { return k.name }

// Fingerprint returns 16 hexadecimal digits that tell keys apart and do not reveal the secret, "" for the zero value.
func (k Key) Fingerprint() string {
	sum, err := k.derive("fingerprint", 8)
	if err != nil {
		return ""
	}
	return hex.EncodeToString(sum)
}

// derive returns bytes that depend on the secret and on info, and that do not reveal the secret.
func (k Key) derive(info string, length int) ([]byte, error) {
	if k.sealed == nil {
		return nil, errors.New("mask: there is no key")
	}
	return hkdf.Key(sha256.New, k.secret[:], nil, info, length)
}

// String returns name and fingerprint.
func (k Key) String() string {
	return strings.TrimSpace(k.name + " " + k.Fingerprint())
}

// Format writes what String returns, whatever the verb.
func (k Key) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// MarshalText returns what String returns.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// WriteFile writes the key to a new file that its owner alone can read, durably. It is an error if the file exists.
func (k Key) WriteFile(path string) error {
	if k.sealed == nil {
		return errors.New("mask: there is no key to write")
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //mutant:exclusive
	if err != nil {
		return fmt.Errorf("mask: write a key: %w", err)
	}
	line := fmt.Sprintf("%s %s %s %x\n", keyVersion, k.name, k.Fingerprint(), *k.secret)
	if err := errors.Join(f.Close(), durable.Replace(path, []byte(line))); err != nil {
		return fmt.Errorf("mask: write a key: %w", errors.Join(err, os.Remove(path)))
	}
	return nil
}

// ReadKeyFile reads a key that WriteFile wrote. The warning says that others can read the file too; it is "" if they
// cannot. No error shows content of the file.
func ReadKeyFile(path string) (k Key, warning string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return Key{}, "", fmt.Errorf("mask: read a key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Key{}, "", fmt.Errorf("mask: read a key: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return Key{}, "", fmt.Errorf("mask: read a key: %w", err)
	}
	if k, err = parseKey(string(text)); err != nil {
		return Key{}, "", fmt.Errorf("mask: key file %s: %w", path, err)
	}
	//mutant:warning
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		warning = fmt.Sprintf("others can read or write the key file %s (mode %04o): chmod 600 it", path, mode)
	}
	return k, warning, nil
}

func parseKey(text string) (Key, error) {
	words := strings.Fields(text)
	if len(words) != 4 || words[0] != keyVersion {
		return Key{}, fmt.Errorf("it is not one line of %q, name, fingerprint and secret", keyVersion)
	}
	k := newKey(words[1])
	if !validName.MatchString(k.name) {
		return Key{}, errors.New("the name is not 1 to 32 of a-z, 0-9 and '-'")
	}
	secret, err := hex.DecodeString(words[3])
	if err != nil || copy(k.secret[:], secret) != len(k.secret) || len(secret) != len(k.secret) {
		return Key{}, errors.New("the secret is not 64 hexadecimal digits")
	}
	if k.Fingerprint() != words[2] { //mutant:fingerprint
		return Key{}, errors.New("the secret does not have this fingerprint: the file was changed")
	}
	return k, nil
}
