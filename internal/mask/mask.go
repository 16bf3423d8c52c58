// Package mask shuffles the numbers below n under a secret key, so that an ID in public shows neither how many there
// are nor which came first: this hides volume and order; it is not encryption of content, and a width below 32 bits
// can be searched.
//
// A mask is a bijection E on [0, n): the generalized Feistel cipher with cycle walking of Black and Rogaway (Ciphers
// with Arbitrary Finite Domains, CT-RSA 2002), with the 10 rounds of FF1 (NIST SP 800-38G), and AES-256 as the source
// of its round functions:
//
//	a = ceil(sqrt(n)), b = ceil(n/a)              so b is a or a-1, and n <= a*b < n+a
//	K = HKDF-SHA256(secret, salt "", info "mask", n, tweak), 32 bytes
//	F(i, v, m) = floor(AES(K, i, v) * m / 2^128)  below m, uniform but for m/2^128
//	x = l + a*r                                   l < a, r < b; then in rounds i = 0 to 9
//	l = l + F(i, r, a) mod a                      if i is even
//	r = r + F(i, l, b) mod b                      if i is odd
//	E(x) = l + a*r                                sent through the rounds again until it is below n
//
// n, i and v are 8 bytes, big-endian. K is of one n and one tweak, so masks of two tags or widths are unrelated.
//
// Cost: the walks of all numbers below n visit each of the a*b values at most once. The mean over [0, n) is therefore
// at most 10*a*b/n < 10.01 AES blocks, whatever the key. A walk takes at most a*b-n+1 <= a < 2^32 passes; one of more
// than j extra passes has a probability below b^-j <= 2^(-10*j).
//
// Bounds, where an adversary knows or chooses q numbers and their masks, with N = sqrt(n) and random round functions:
//
//   - Six or more rounds differ from a random permutation by O(q^4/N^3 + q^2/N^2) (Patarin, FSE 1998), and are secure
//     for q far below N (Patarin, CRYPTO 2004): proven for halves of bits. Hoang and Rogaway (CRYPTO 2010) have
//     q = N^(1-e) for any e > 0 with enough rounds, for halves that are numbers, too. So nothing is proven above 2^10
//     masks of 2^20, and 2^31 of 2^63.
//   - Cycle walking loses nothing (Black and Rogaway): an adversary on [0, n) is one on [0, a*b).
//   - Attacks above that bound cost N^((r-5)*N) steps for all tables of r rounds (Durak and Vaudenay, CRYPTO 2017), or
//     need many tweaks, of which a tag has one: 2^25 examples for 4 bits (Bellare, Hoang and Tessaro, CCS 2016).
//     Because of these NIST wants 10^6 numbers at least; here it is 2^20.
//   - FF3 fell since its tweak could cancel the number of a round: two tweaks gave one network, slid by rounds
//     (Durak and Vaudenay). Here the tweak chooses K, and the number of a round has bytes of its own.
//
// Who has the key has all masks under it. Time depends on the number of passes, and on nothing else that is secret.
package mask

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"sync"
)

// MinSize is the least n of a mask.
const MinSize = 1 << 20

const maxSize = 1 << 63

const rounds = 10 //mutant:rounds

// A Mask is a bijection on [0, n). It is safe for concurrent use, and allocates nothing.
type Mask struct {
	n, a, b uint64 // n <= a*b < n+a
	block   cipher.Block
	buffers sync.Pool // of *buffer: one on the stack would escape through the interface of block
}

type buffer [aes.BlockSize]byte

// New returns the mask of a key for the numbers below n, which is 2^20 to 2^63. Masks of two tweaks are unrelated; a
// tweak is a tag, for example.
func New(k Key, n uint64, tweak string) (*Mask, error) {
	if n < MinSize || n > maxSize {
		return nil, fmt.Errorf("mask: %d numbers cannot be masked, only 2^20 to 2^63", n)
	}
	info := string(binary.BigEndian.AppendUint64([]byte("mask"), n)) + tweak //mutant:info
	secret, err := k.derive(info, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	a := ceilSqrt(n)
	m := &Mask{n: n, a: a, b: (n + a - 1) / a, block: block}
	m.buffers.New = func() any { return new(buffer) } //mutant:buffer
	return m, nil
}

// Format writes the size of the mask, whatever the verb. Without it, package fmt shows keys of block to some verbs.
//
//mutant:shown
func (m *Mask) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "mask of %d numbers", m.n) }

// ceilSqrt returns the least a with a*a >= n, for 0 < n <= 2^63.
func ceilSqrt(n uint64) uint64 {
	a := uint64(math.Sqrt(float64(n)))
	for a*a >= n {
		a--
	}
	for a*a < n {
		a++
	}
	return a
}

// Hide returns the mask of x. It panics if x is not in [0, n).
func (m *Mask) Hide(x int64) int64 { return m.walk(x, m.forward) }

// Show returns the number whose mask is y. It panics if y is not in [0, n).
func (m *Mask) Show(y int64) int64 { return m.walk(y, m.backward) }

// walk applies the network until the number is below n again. It ends: the network is a permutation, so that each
// number lies on a cycle, and comes back to itself at the latest.
func (m *Mask) walk(x int64, network func(x uint64, buf *buffer) uint64) int64 {
	if x < 0 || uint64(x) >= m.n { //mutant:range
		panic(fmt.Sprintf("mask: %d is not below %d", x, m.n))
	}
	buf := m.buffers.Get().(*buffer)
	y := network(uint64(x), buf)
	for y >= m.n { //mutant:walk
		y = network(y, buf)
	}
	m.buffers.Put(buf)
	return int64(y)
}

func (m *Mask) forward(x uint64, buf *buffer) uint64 {
	l, r := x%m.a, x/m.a //mutant:halves
	for i := uint64(0); i < rounds; i += 2 {
		l = add(l, m.round(i, r, m.a, buf), m.a)
		r = add(r, m.round(i+1, l, m.b, buf), m.b)
	}
	return l + m.a*r
}

// backward undoes forward.
func (m *Mask) backward(y uint64, buf *buffer) uint64 {
	l, r := y%m.a, y/m.a
	for i := uint64(rounds); i > 0; i -= 2 {
		r = add(r, m.b-m.round(i-1, l, m.b, buf), m.b) //mutant:undone
		l = add(l, m.a-m.round(i-2, r, m.a, buf), m.a)
	}
	return l + m.a*r
}

// add returns v + w modulo size, for v < size and w <= size.
func add(v, w, size uint64) uint64 {
	if v += w; v >= size {
		v -= size
	}
	return v
}

// round returns a number below size, which is F(i, v, size) of the package comment. It is uniform but for size/2^128.
func (m *Mask) round(i, v, size uint64, buf *buffer) uint64 {
	binary.BigEndian.PutUint64(buf[:8], i) //mutant:number
	binary.BigEndian.PutUint64(buf[8:], v)
	m.block.Encrypt(buf[:], buf[:])
	high, low := bits.Mul64(binary.BigEndian.Uint64(buf[:8]), size)
	carry, _ := bits.Mul64(binary.BigEndian.Uint64(buf[8:]), size)
	_, over := bits.Add64(low, carry, 0)
	return high + over //mutant:fraction
}
