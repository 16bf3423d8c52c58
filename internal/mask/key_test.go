package mask

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestAKeyOutlivesItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k1.key")
	k, err := NewKey("k1")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	back, warning, err := ReadKeyFile(path)
	if err != nil || warning != "" || back.Name() != "k1" || *back.secret != *k.secret {
		t.Errorf("read %v, want %v (warning %q): %v", back, k, warning, err)
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode() != 0o600 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("%d files beside the key, want none: %v", len(left)-1, err)
	}
}

func TestTwoNewKeysDiffer(t *testing.T) {
	a, _ := NewKey("k1")
	b, _ := NewKey("k1")
	if *a.secret == *b.secret || a.Fingerprint() == b.Fingerprint() || *a.secret == [32]byte{} {
		t.Errorf("two new keys are %v and %v", a, b)
	}
}

func TestAFileIsNeverOverwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k1.key")
	if err := os.WriteFile(path, []byte("a key of before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := counting.WriteFile(path); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); string(text) != "a key of before" {
		t.Errorf("%q: %v", text, err)
	}
	if err := (Key{}).WriteFile(path + ".new"); err == nil || !strings.Contains(err.Error(), "no key") {
		t.Error(err)
	}
}

// A write that fails leaves no file that the next one would find: here the new text has no room, since a folder has
// its name.
func TestAFailedWriteLeavesNoFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k1.key")
	if err := os.Mkdir(path+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := counting.WriteFile(path); err == nil {
		t.Fatal("written")
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestOthersWhoCanReadAKeyAreAWarning(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file has no such mode on Windows")
	}
	path := filepath.Join(t.TempDir(), "k1.key")
	if err := counting.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	for mode, warned := range map[fs.FileMode]bool{
		0o600: false, 0o400: false, 0o640: true, 0o604: true, 0o644: true, 0o620: true,
	} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		k, warning, err := ReadKeyFile(path)
		if err != nil || k.Name() != "k1" {
			t.Errorf("mode %o: %v, %v", mode, k, err)
		}
		want := fmt.Sprintf("(mode %04o): chmod 600", mode)
		if (warning != "") != warned || warned && !strings.Contains(warning, want) {
			t.Errorf("mode %o: warning %q", mode, warning)
		}
	}
}

// The fingerprint was computed by the program of the known answers.
const (
	fingerprint = "dd630a267d515202"
	secret      = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	keyLine     = keyVersion + " k1 " + fingerprint + " " + secret
)

func TestAWrongKeyFileIsRefusedWithTheReasonAndWithoutItsContent(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"the key":                        {keyLine + "\n", ""},
		"no line end":                    {keyLine, ""},
		"a line end of Windows":          {keyLine + "\r\n", ""},
		"empty":                          {"", "not one line"},
		"another file":                   {"-----BEGIN PRIVATE KEY-----\n" + secret + "\n", "not one line"},
		"another version":                {strings.Replace(keyLine, "key-1", "key-2", 1), "not one line"},
		"no fingerprint":                 {keyVersion + " k1 " + secret, "not one line"},
		"two keys":                       {keyLine + "\n" + keyLine + "\n", "not one line"},
		"a name in upper case":           {strings.Replace(keyLine, "k1", "K1", 1), "name is not"},
		"a long name":                    {strings.Replace(keyLine, "k1", strings.Repeat("k", 33), 1), "name is not"},
		"a secret that is cut":           {keyLine[:len(keyLine)-2], "not 64"},
		"a secret that is too long":      {keyLine + "00", "not 64"},
		"an odd digit":                   {keyLine[:len(keyLine)-1], "not 64"},
		"a letter in the secret":         {strings.Replace(keyLine, "0001", "000x", 1), "not 64"},
		"a changed digit":                {strings.Replace(keyLine, "0001", "0002", 1), "fingerprint"},
		"a changed fingerprint":          {strings.Replace(keyLine, fingerprint, "0000000000000000", 1), "fingerprint"},
		"a key after megabytes of space": {strings.Repeat(" ", 1<<20) + keyLine, "not one line"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "k1.key")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			k, _, err := ReadKeyFile(path)
			if tc.want == "" {
				if err != nil || k.Name() != "k1" || *k.secret != *counting.secret {
					t.Errorf("%v, %v", k, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v, want %q and the path", err, tc.want)
			} else if strings.Contains(err.Error(), secret[6:20]) {
				t.Errorf("the secret is shown: %v", err)
			}
			if k != (Key{}) {
				t.Errorf("the key is %v beside an error", k)
			}
		})
	}
	if _, _, err := ReadKeyFile(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, _, err := ReadKeyFile(t.TempDir()); err == nil {
		t.Error("a folder is read as a key")
	}
}

func TestAKeyNeedsAName(t *testing.T) {
	for name, good := range map[string]bool{
		"k1": true, "2026-orders": true, strings.Repeat("k", 32): true,
		"": false, "-k": false, "K1": false, "k 1": false, "k}": false, "k:1": false, "ü": false, "k1\n": false,
		strings.Repeat("k", 33): false,
	} {
		if k, err := NewKey(name); (err == nil) != good || good && k.Name() != name {
			t.Errorf("name %q: %v, %v", name, k, err)
		}
	}
}

// Whatever prints a key or a mask, alone or within other values, shows no four bytes of a secret in a row.
func TestASecretIsNotShown(t *testing.T) {
	type holder struct {
		Key    Key
		hidden Key
		Many   map[string]*Key
		mask   *Mask
	}
	k := newKey("k1")
	*k.secret = sha256.Sum256([]byte("any"))
	m, err := New(k, 1e8, "order")
	if err != nil {
		t.Fatal(err)
	}
	derived, err := k.derive("mask\x00\x00\x00\x00\x05\xf5\xe1\x00order", 32)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, v := range []any{k, &k, holder{k, k, map[string]*Key{"k": &k}, m}, &holder{Key: k, hidden: k}, []Key{k}, m} {
		for _, verb := range "vsqxXdobcpT" {
			for _, flag := range []string{"%", "%+", "%#"} {
				fmt.Fprintf(&out, flag+string(verb)+"\n", v)
			}
		}
		if err := json.NewEncoder(&out).Encode(v); err != nil {
			t.Error(err)
		}
		slog.New(slog.NewTextHandler(&out, nil)).Info("a key", "key", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("a key", "key", v)
	}
	for i := range 32 - 3 {
		for _, four := range [][]byte{k.secret[i : i+4], derived[i : i+4]} {
			forms := []any{four, binary.BigEndian.Uint32(four), binary.LittleEndian.Uint32(four)}
			for j, form := range []string{"%d", "%x", "%X", "%o", "%b", "%s", "%c", "%#x", "%#v"} {
				for _, v := range forms[:min(len(forms), 1+2*max(0, 5-j))] {
					form := strings.Trim(strings.TrimPrefix(fmt.Sprintf(form, v), "[]byte"), "[]{}")
					if strings.Contains(out.String(), form) {
						t.Fatalf("%q is shown in\n%s", form, out.String())
					}
				}
			}
		}
	}
	if name := k.String(); !strings.HasPrefix(name, "k1 ") || !strings.Contains(out.String(), name) {
		t.Errorf("%q is not shown", name)
	}
}

func TestTheZeroKeyIsShownAsNothing(t *testing.T) {
	if text := fmt.Sprintf("%v%+v%#v%s%x", Key{}, Key{}, Key{}, Key{}.Name(), Key{}.Fingerprint()); text != "" {
		t.Errorf("%q", text)
	}
}
