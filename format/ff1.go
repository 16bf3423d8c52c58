package format

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// A mask is FF1 of NIST SP 800-38G in radix 10 under AES-256, for numbers of 6 to 18 digits: a bijection for each
// tweak. Both halves of a number are below 10^9, so that each step fits in 64 bits. It is safe for concurrent use.
type mask struct {
	block cipher.Block
	width int
	sizes [2]uint64 // how many values each half has; 10^u and 10^v of the standard
	room  int       // bytes of a half; b of the standard
}

func newMask(key []byte, width int) (*mask, error) {
	if len(key) != 32 {
		return nil, fmt.Errorf("it has %d bytes, want 32", len(key))
	}
	block, err := aes.NewCipher(key)
	m := &mask{block: block, width: width, sizes: [2]uint64{1, 1}}
	for i := range width {
		m.sizes[1-i%2] *= 10
	}
	m.room = (bits.Len64(m.sizes[1]-1) + 7) / 8
	return m, err
}

const rounds = 10 //mutant:rounds

func (m *mask) hide(n int64, tweak string) int64 {
	f := m.round(tweak)
	a, b := uint64(n)/m.sizes[1], uint64(n)%m.sizes[1]
	for i := range uint64(rounds) {
		a, b = b, (a+f(i, b))%m.sizes[i%2]
	}
	return int64(a*m.sizes[1] + b)
}

// show is the inverse of hide: it returns the number that hide turns into n.
func (m *mask) show(n int64, tweak string) int64 {
	f := m.round(tweak)
	a, b := uint64(n)/m.sizes[1], uint64(n)%m.sizes[1]
	for i := uint64(rounds); i > 0; i-- {
		size := m.sizes[(i-1)%2]
		a, b = (b+size-f(i-1, a)%size)%size, a
	}
	return int64(a*m.sizes[1] + b)
}

// round returns the round function of a tweak, modulo 10^9: the first eight bytes of the last block of a CBC-MAC over
// the blocks P and Q of the standard. The blocks before the last are the same in each round, and encrypted once.
func (m *mask) round(tweak string) func(i, half uint64) uint64 {
	text := []byte{1, 2, 1, 0, 0, 10, 10, byte(m.width / 2), 0, 0, 0, byte(m.width)}
	text = append(binary.BigEndian.AppendUint32(text, uint32(len(tweak))), tweak...)
	for (len(text)+1+m.room)%aes.BlockSize > 0 {
		text = append(text, 0)
	}
	text = append(text, make([]byte, 1+m.room)...)
	state := make([]byte, aes.BlockSize)
	for ; len(text) > aes.BlockSize; text = text[aes.BlockSize:] {
		subtle.XORBytes(state, state, text[:aes.BlockSize])
		m.block.Encrypt(state, state)
	}
	subtle.XORBytes(state, state, text)
	return func(i, half uint64) uint64 {
		last := binary.BigEndian.Uint64(state[8:]) ^ i<<(8*m.room) ^ half
		m.block.Encrypt(text, binary.BigEndian.AppendUint64(append(text[:0], state[:8]...), last))
		return binary.BigEndian.Uint64(text) % 1e9
	}
}
