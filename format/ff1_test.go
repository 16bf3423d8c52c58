package format

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/hex"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
)

// ff1 is FF1.Encrypt of NIST SP 800-38G, section 6.2, step by step, for digits below a radix.
func ff1(block cipher.Block, radix int64, tweak []byte, x []int64) []int64 {
	n, t := len(x), len(tweak)
	u := n / 2
	v := n - u
	a, b := x[:u], x[u:]
	bytes := (new(big.Int).Sub(power(radix, v), big.NewInt(1)).BitLen() + 7) / 8 // ceil(ceil(v*log2(radix)) / 8)
	d := 4*((bytes+3)/4) + 4
	p := append([]byte{1, 2, 1}, octets(big.NewInt(radix), 3)...)
	p = append(p, 10, byte(u))
	p = append(append(p, octets(big.NewInt(int64(n)), 4)...), octets(big.NewInt(int64(t)), 4)...)
	for i := range 10 {
		q := append([]byte{}, tweak...)
		q = append(q, make([]byte, ((-t-bytes-1)%16+16)%16)...)
		q = append(append(q, byte(i)), octets(num(radix, b), bytes)...)
		r := make([]byte, 16) // PRF(P || Q)
		for message := append(append([]byte{}, p...), q...); len(message) > 0; message = message[16:] {
			for j := range r {
				r[j] ^= message[j]
			}
			block.Encrypt(r, r)
		}
		s := append([]byte{}, r...)
		for j := 1; len(s) < d; j++ {
			next := octets(big.NewInt(int64(j)), 16)
			for k := range next {
				next[k] ^= r[k]
			}
			block.Encrypt(next, next)
			s = append(s, next...)
		}
		m := u
		if i%2 == 1 {
			m = v
		}
		c := num(radix, a)
		c.Add(c, new(big.Int).SetBytes(s[:d])).Mod(c, power(radix, m))
		a, b = b, str(radix, m, c)
	}
	return append(append([]int64{}, a...), b...)
}

func power(radix int64, m int) *big.Int {
	return new(big.Int).Exp(big.NewInt(radix), big.NewInt(int64(m)), nil)
}

func octets(n *big.Int, bytes int) []byte { return n.FillBytes(make([]byte, bytes)) }

func num(radix int64, digits []int64) *big.Int {
	n := new(big.Int)
	for _, d := range digits {
		n.Mul(n, big.NewInt(radix)).Add(n, big.NewInt(d))
	}
	return n
}

func str(radix int64, m int, n *big.Int) []int64 {
	digits, rest := make([]int64, m), new(big.Int)
	for i := m - 1; i >= 0; i-- {
		n.DivMod(n, big.NewInt(radix), rest)
		digits[i] = rest.Int64()
	}
	return digits
}

const samplesKey = "2B7E151628AED2A6ABF7158809CF4F3CEF4359D8D580AA4F7F036D6F04FC6A94"

// TestTheReferencePassesTheSamplesOfNIST plays those of
// https://csrc.nist.gov/projects/cryptographic-standards-and-guidelines/example-values.
func TestTheReferencePassesTheSamplesOfNIST(t *testing.T) {
	const digits, letters = "0123456789", "0123456789abcdefghi"
	for i, sample := range []struct {
		key         int // its bytes
		radix       int64
		tweak       string
		plain, want string
	}{
		{16, 10, "", digits, "2433477484"},
		{16, 10, "39383736353433323130", digits, "6124200773"},
		{16, 36, "3737373770717273373737", letters, "a9tv40mll9kdu509eum"},
		{24, 10, "", digits, "2830668132"},
		{24, 10, "39383736353433323130", digits, "2496655549"},
		{24, 36, "3737373770717273373737", letters, "xbj3kv35jrawxv32ysr"},
		{32, 10, "", digits, "6657667009"},
		{32, 10, "39383736353433323130", digits, "1001623463"},
		{32, 36, "3737373770717273373737", letters, "xs8a0azh2avyalyzuwd"},
	} {
		key, err := hex.DecodeString(samplesKey[:2*sample.key])
		if err != nil {
			t.Fatal(err)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			t.Fatal(err)
		}
		tweak, err := hex.DecodeString(sample.tweak)
		if err != nil {
			t.Fatal(err)
		}
		var x []int64
		for _, c := range sample.plain {
			x = append(x, int64(strings.IndexRune(alphabet, c-c/'a'*('a'-'A'))))
		}
		got := ""
		for _, d := range ff1(block, sample.radix, tweak, x) {
			got += strings.ToLower(alphabet[d : d+1])
		}
		if got != sample.want {
			t.Errorf("sample %d: %s, want %s", i+1, got, sample.want)
		}
	}
}

func TestMasksAreFF1(t *testing.T) {
	key, err := hex.DecodeString(samplesKey)
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for width := 6; width <= 18; width++ {
		m, err := newMask(key, width)
		if err != nil {
			t.Fatal(err)
		}
		all := power(10, width).Int64()
		for length := range 150 { // of a tag and a date
			tweak := strings.Repeat("so/20261125", 14)[:length]
			for _, n := range []int64{0, 42, all - 1, random.Int64N(all)} {
				want := num(10, ff1(block, 10, []byte(tweak), str(10, width, big.NewInt(n)))).Int64()
				got := m.hide(n, tweak)
				if back := m.show(got, tweak); got != want || back != n {
					t.Fatalf("%d of width %d under %q: %d, read as %d, want %d", n, width, tweak, got, back, want)
				}
			}
		}
	}
	if _, err := newMask(key[:31], 9); fmt.Sprint(err) != "it has 31 bytes, want 32" {
		t.Error(err)
	}
}
