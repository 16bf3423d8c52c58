package natsembed

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/nats-io/nkeys"

	"github.com/natsid/natsid/internal/durable"
)

// A Key is the nkey of a user. All methods are safe for concurrent use.
type Key struct {
	File   string // holds the seed, readable by its owner alone; NATS clients connect with it
	Public string // the public key, for the server
	pair   nkeys.KeyPair
}

// OpenKey returns the key in a file. If there is no such file, it makes a key and writes it.
func OpenKey(file string) (*Key, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKey(file)
	}
	if err != nil {
		return nil, fmt.Errorf("natsembed: the key of a user cannot be read: %w", err)
	}
	pair, err := nkeys.ParseDecoratedUserNKey(text)
	if err != nil {
		return nil, fmt.Errorf("natsembed: %s has no key of a user: %w; "+
			"restore the file, or remove it, and the next start makes another key", file, err)
	}
	return newKey(file, pair)
}

func makeKey(file string) (*Key, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("natsembed: make a key: %w", err)
	}
	seed, err := pair.Seed()
	if err != nil {
		return nil, fmt.Errorf("natsembed: make a key: %w", err)
	}
	if err := durable.Replace(file, append(seed, '\n')); err != nil {
		return nil, fmt.Errorf("natsembed: the key of a user cannot be written: %w", err)
	}
	return newKey(file, pair)
}

func newKey(file string, pair nkeys.KeyPair) (*Key, error) {
	public, err := pair.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("natsembed: the key of %s: %w", file, err)
	}
	return &Key{File: file, Public: public, pair: pair}, nil
}

// Sign signs the nonce of a server. It is a [nats.SignatureHandler].
func (k *Key) Sign(nonce []byte) ([]byte, error) { return k.pair.Sign(nonce) }
