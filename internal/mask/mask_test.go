package mask

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
)

var trips = flag.Int64("mask.trips", 1_000_000, "how many round trips to make, through masks of random sizes")

// counting is a secret for known answers: the bytes 0 to 31.
var counting = func() Key {
	k := newKey("k1")
	for i := range k.secret {
		k.secret[i] = byte(i)
	}
	return k
}()

func newMask(t testing.TB, n uint64, tweak string) *Mask {
	t.Helper()
	m, err := New(counting, n, tweak)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// proof skips a test with the race detector if all that it does is to compute, in goroutines that share nothing.
func proof(t *testing.T) {
	if raced {
		t.Skip("what only computes is tested without the race detector")
	}
}

// fewer returns how many samples to take: all of them, or those that are enough with -short.
func fewer(all, enough int) int {
	if testing.Short() {
		return enough
	}
	return all
}

// The masks of 0, 1, n/2 and n-1 were computed once by a program in JavaScript, with HMAC and AES-ECB of OpenSSL and
// with BigInt, from the formulas of the package comment. A change here makes all texts of today unreadable.
func TestKnownAnswers(t *testing.T) {
	for _, tc := range []struct {
		n     uint64
		tweak string
		masks [4]int64
	}{
		{1 << 20, "", [4]int64{770235, 176015, 567160, 183926}},
		{1<<20 + 1, "order", [4]int64{150909, 198139, 231932, 959539}},
		{1_234_567, "order", [4]int64{488527, 312695, 67691, 1057459}},
		{1e8, "order", [4]int64{28909803, 68907170, 5932037, 65250050}},
		{1e8, "invoice", [4]int64{48580060, 47412717, 17372481, 27149603}},
		{1 << 31, "ü", [4]int64{615552151, 807277282, 996742323, 1462284786}},
		{1 << 53, "order", [4]int64{817810546044705, 591727103245752, 7074166404957895, 7758072374606086}},
		{1e18, "order", [4]int64{248533002502834194, 138330615067663018, 861292878745199332, 62720513377782754}},
		{1<<63 - 1, "order",
			[4]int64{32601258290245890, 3557422663393864397, 6541331364152844528, 596506932168411485}},
		{1 << 63, "order",
			[4]int64{5320409695463680617, 1816145769951536800, 3496178828831009378, 8090664856984764941}},
	} {
		m := newMask(t, tc.n, tc.tweak)
		for i, x := range [4]int64{0, 1, int64(tc.n / 2), int64(tc.n - 1)} {
			if y := m.Hide(x); y != tc.masks[i] {
				t.Errorf("n %d, tweak %q: the mask of %d is %d, want %d", tc.n, tc.tweak, x, y, tc.masks[i])
			}
			if back := m.Show(tc.masks[i]); back != x {
				t.Errorf("n %d, tweak %q: %d is shown as %d, want %d", tc.n, tc.tweak, tc.masks[i], back, x)
			}
		}
	}
	if y := newMask(t, 1<<20+1, "order").Hide(77); y != 987636 {
		t.Errorf("the mask of 77, which takes two passes, is %d, want 987636", y)
	}
}

// byTheBook returns the mask of x as the package comment defines it, in big numbers.
func byTheBook(t testing.TB, n uint64, tweak string, x int64) int64 {
	sign := func(key []byte, parts ...string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(strings.Join(parts, "")))
		return h.Sum(nil)
	}
	eight := func(v uint64) string { return string(binary.BigEndian.AppendUint64(nil, v)) }
	extracted := sign(make([]byte, 32), string(counting.secret[:]))
	block, err := aes.NewCipher(sign(extracted, "mask", eight(n), tweak, "\x01"))
	if err != nil {
		t.Fatal(err)
	}
	size := new(big.Int).SetUint64(n)
	one := big.NewInt(1)
	a := new(big.Int).Sqrt(new(big.Int).Sub(size, one))
	a.Add(a, one)
	b := new(big.Int).Add(size, a)
	b.Sub(b, one).Div(b, a)

	y := big.NewInt(x)
	for again := true; again; again = y.Cmp(size) >= 0 {
		r, l := new(big.Int).DivMod(y, a, new(big.Int))
		for i := range uint64(10) {
			changed, other, m := l, r, a
			if i%2 == 1 {
				changed, other, m = r, l, b
			}
			out := make([]byte, 16)
			block.Encrypt(out, []byte(eight(i)+eight(other.Uint64())))
			f := new(big.Int).SetBytes(out)
			f.Mul(f, m).Rsh(f, 128)
			changed.Add(changed, f).Mod(changed, m)
		}
		y = l.Add(l, r.Mul(r, a))
	}
	return y.Int64()
}

// anySize returns a random n: its number of bits is uniform.
func anySize(rng *rand.Rand) uint64 {
	n := rng.Uint64() >> 1 >> rng.UintN(43)
	return max(n, MinSize+n%1000)
}

func TestAMaskIsWhatThePackageCommentDefines(t *testing.T) {
	proof(t)
	rng := rand.New(rand.NewPCG(1, 1))
	for range fewer(20_000, 2_000) {
		n, tweak := anySize(rng), fmt.Sprint(rng.Uint32())
		x := rng.Int64N(int64(n))
		if got, want := newMask(t, n, tweak).Hide(x), byTheBook(t, n, tweak, x); got != want {
			t.Fatalf("n %d, tweak %q: the mask of %d is %d, want %d", n, tweak, x, got, want)
		}
	}
}

func TestAMaskIsABijection(t *testing.T) {
	proof(t)
	for _, n := range []uint64{1 << 20, 1<<20 + 1, 1_234_567, 1_048_583 /* a prime */} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			m, used := newMask(t, n, "order"), make([]uint64, n/64+1)
			for x := range int64(n) {
				y := m.Hide(x)
				if y < 0 || uint64(y) >= n || used[y/64]&(1<<(y%64)) != 0 {
					t.Fatalf("the mask of %d is %d, which is out of range or used", x, y)
				}
				used[y/64] |= 1 << (y % 64)
				if back := m.Show(y); back != x {
					t.Fatalf("%d is shown as %d, want %d", y, back, x)
				}
			}
		})
	}
}

// 10^8 trips take half a minute: go test ./internal/mask -run RoundTrips -args -mask.trips=100000000
func TestRoundTripsOfRandomSizes(t *testing.T) {
	proof(t)
	const perMask = 500
	var wg sync.WaitGroup
	for seed := range uint64(2) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 2))
			for range *trips / perMask / 2 {
				n := anySize(rng)
				m := newMask(t, n, "order")
				for range perMask {
					x := rng.Int64N(int64(n))
					if back := m.Show(m.Hide(x)); back != x {
						t.Errorf("n %d: %d came back as %d", n, x, back)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

func FuzzRoundTrip(f *testing.F) {
	f.Add(uint64(1<<20), "order", int64(0))
	f.Add(uint64(1<<63), "", int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, n uint64, tweak string, x int64) {
		m, err := New(counting, n, tweak)
		if (err == nil) != (n >= 1<<20 && n <= 1<<63) {
			t.Fatalf("n %d: %v", n, err)
		}
		if err != nil {
			return
		}
		x = int64(uint64(x) % n)
		y := m.Hide(x)
		if y < 0 || uint64(y) >= n || m.Show(y) != x || y != byTheBook(t, n, tweak, x) {
			t.Errorf("n %d, tweak %q: %d is hidden as %d and shown as %d", n, tweak, x, y, m.Show(y))
		}
	})
}

// Each bit of a number changes each bit of its mask in half of the cases.
func TestAvalanche(t *testing.T) {
	proof(t)
	for _, width := range []int{20, 31, 32, 63} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			t.Parallel()
			samples, most := fewer(1<<16, 1<<12), 0.01
			if samples < 1<<16 {
				most = 0.045 // 5.8 standard deviations
			}
			m, rng := newMask(t, 1<<width, "order"), rand.New(rand.NewPCG(uint64(width), 3))
			changed := make([][]int, width)
			for i := range changed {
				changed[i] = make([]int, width)
			}
			for range samples {
				x := int64(rng.Uint64() >> (64 - width))
				y := m.Hide(x)
				for i := range width {
					for d := uint64(m.Hide(x^1<<i) ^ y); d != 0; d &= d - 1 {
						changed[i][bits.TrailingZeros64(d)]++
					}
				}
			}
			worst := 0.0
			for i := range width {
				for j := range width {
					worst = max(worst, math.Abs(float64(changed[i][j])/float64(samples)-0.5))
				}
			}
			if t.Logf("worst of %d x %d bits, %d samples: 0.5 +/- %.4f", width, width, samples, worst); worst > most {
				t.Errorf("a bit changes another in 0.5 +/- %.4f of the cases, want at most %v", worst, most)
			}
		})
	}
}

// moments are the sums of which a correlation is made.
type moments struct{ n, x, y, xx, yy, xy float64 }

func (s *moments) add(x, y float64) {
	s.n, s.x, s.y, s.xx, s.yy, s.xy = s.n+1, s.x+x, s.y+y, s.xx+x*x, s.yy+y*y, s.xy+x*y
}

func (s *moments) join(o moments) {
	s.n, s.x, s.y, s.xx, s.yy, s.xy = s.n+o.n, s.x+o.x, s.y+o.y, s.xx+o.xx, s.yy+o.yy, s.xy+o.xy
}

func (s *moments) correlation() float64 {
	return (s.n*s.xy - s.x*s.y) / math.Sqrt((s.n*s.xx-s.x*s.x)*(s.n*s.yy-s.y*s.y))
}

func TestNeighboursDoNotCorrelate(t *testing.T) {
	proof(t)
	const n, runs = 1e8, 20
	samples, most := fewer(20_000_000, 1_000_000), 0.001
	if samples < 20_000_000 {
		most = 0.0045 // 4.5 standard deviations, as well
	}
	m := newMask(t, n, "order")
	var mu sync.Mutex
	var wg sync.WaitGroup
	var neighbours, order moments // of two masks in turn; of a number and its mask
	var rises int
	for run := range runs {
		wg.Go(func() {
			first := int64(run) * n / runs
			last, a, b, up := float64(m.Hide(first))/n-0.5, moments{}, moments{}, 0
			for x := first + 1; x <= first+int64(samples/runs) && x < n; x++ {
				y := float64(m.Hide(x))/n - 0.5
				a.add(last, y)
				b.add(float64(x)/n-0.5, y)
				if y > last {
					up++
				}
				last = y
			}
			mu.Lock()
			defer mu.Unlock()
			neighbours.join(a)
			order.join(b)
			rises += up
		})
	}
	wg.Wait()
	rise := float64(rises)/neighbours.n - 0.5
	t.Logf("%.0f samples: neighbours correlate by %.5f, number and mask by %.5f, a mask rises in 0.5%+.5f of the cases",
		neighbours.n, neighbours.correlation(), order.correlation(), rise)
	for what, c := range map[string]float64{
		"neighbours": neighbours.correlation(), "number and mask": order.correlation(), "rises": rise,
	} {
		if !(math.Abs(c) < most) {
			t.Errorf("%s: %.5f, want less than %v", what, c, most)
		}
	}
}

// Two random permutations differ by each number about as often as by any other: here hardly by one more than 4 times.
func TestMasksOfTwoTweaksSizesOrKeysAreUnrelated(t *testing.T) {
	proof(t)
	const n = 1<<20 + 64
	other, err := NewKey("k2")
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := New(other, n, "order")
	if err != nil {
		t.Fatal(err)
	}
	m := newMask(t, n, "order")
	for what, o := range map[string]*Mask{
		"a tweak that is longer": newMask(t, n, "orders"), "no tweak": newMask(t, n, ""),
		"a size of the same halves": newMask(t, n-1, "order"), "another key": foreign,
	} {
		if o.a != m.a || o.b != m.b {
			t.Fatalf("%s: halves of %d and %d, want %d and %d", what, o.a, o.b, m.a, m.b)
		}
		shifted := map[int64]int{}
		for x := range int64(1 << 16) {
			shifted[m.Hide(x)-o.Hide(x)]++
		}
		for by, times := range shifted {
			if times > 8 {
				t.Errorf("%s: %d of 2^16 masks differ by %d", what, times, by)
			}
		}
	}
}

// A meter counts the blocks that it encrypts.
type meter struct {
	cipher.Block
	blocks int
}

func (c *meter) Encrypt(dst, src []byte) {
	c.blocks++
	c.Block.Encrypt(dst, src)
}

func TestACallTakesTenBlocksAndHardlyMore(t *testing.T) {
	proof(t)
	for _, tc := range []struct {
		n    uint64
		mean float64 // at most
	}{
		{1 << 20, 10}, {1 << 32, 10}, {1 << 62, 10}, {1<<20 + 1, 10.01}, {1 << 21, 10.02}, {1_234_567, 10.02},
		{1 << 63, 10.0001},
	} {
		m := newMask(t, tc.n, "order")
		c := &meter{Block: m.block}
		m.block = c
		last, worst, calls := 0, 0, 1<<15
		if tc.n == 1<<20+1 {
			calls = int(tc.n) // the law is about the mean of all
		}
		for x := range calls {
			m.Hide(int64(x))
			last, worst = c.blocks, max(worst, c.blocks-last)
		}
		mean := float64(last) / float64(calls)
		t.Logf("n %d: %.4f blocks in the mean, %d at most", tc.n, mean, worst)
		if mean > tc.mean || mean < rounds {
			t.Errorf("n %d: %.4f blocks in the mean, want 10 to %v", tc.n, mean, tc.mean)
		}
		if outside := int(m.a*m.b - m.n); worst > rounds*(outside+1) || worst > 50 {
			t.Errorf("n %d: %d blocks in one call, with %d values outside", tc.n, worst, outside)
		}
	}
}

func TestHalvesCoverTheSizeAndHardlyMore(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	sizes := []uint64{1 << 20, 1<<20 + 1, 1 << 63, 1<<63 - 1, 3037000499 * 3037000499, 3037000499*3037000499 + 1}
	for range 10_000 {
		root := 1024 + rng.Uint64N(3037000499-1024)
		sizes = append(sizes, root*root, root*root-1+2*rng.Uint64N(2), anySize(rng))
	}
	for _, n := range sizes {
		if n < MinSize {
			continue
		}
		m := newMask(t, n, "")
		if product := m.a * m.b; product < n || product >= n+m.a || m.b != m.a && m.b != m.a-1 || (m.a-1)*(m.a-1) >= n {
			t.Errorf("n %d: halves of %d and %d", n, m.a, m.b)
		}
	}
}

func TestACallAllocatesNothing(t *testing.T) {
	if raced {
		t.Skip("sync.Pool forgets buffers at random with the race detector")
	}
	m := newMask(t, 1e8, "order")
	if n := testing.AllocsPerRun(1000, func() { m.Show(m.Hide(4711)) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A stuck cipher gives one block, whatever it is to encrypt.
type stuck struct {
	cipher.Block
	high, low uint64
}

func (c stuck) Encrypt(dst, _ []byte) {
	binary.BigEndian.PutUint64(dst[:8], c.high)
	binary.BigEndian.PutUint64(dst[8:], c.low)
}

// Of one block in 2^32 the lower half decides, so that hardly any call needs it: the blocks are chosen.
func TestARoundIsTheExactFractionOfABlock(t *testing.T) {
	const size = 3037000499
	rng := rand.New(rand.NewPCG(5, 5))
	carried := 0
	for _, high := range []uint64{0, 1, math.MaxUint64, before(size), rng.Uint64()} {
		for _, low := range []uint64{0, 1, 1 << 63, math.MaxUint64, rng.Uint64()} {
			m := newMask(t, 1e18, "order")
			m.block = stuck{high: high, low: low}
			want := new(big.Int).Lsh(new(big.Int).SetUint64(high), 64)
			want.Add(want, new(big.Int).SetUint64(low)).Mul(want, big.NewInt(size)).Rsh(want, 128)
			if got := m.round(0, 0, size, new(buffer)); got != want.Uint64() {
				t.Errorf("block %016x%016x: %d, want %d", high, low, got, want)
			}
			if whole, _ := bits.Mul64(high, size); whole != want.Uint64() {
				carried++
			}
		}
	}
	if carried == 0 {
		t.Error("in no block the lower half decides")
	}
}

// before returns the v with v*odd = 2^64-1 modulo 2^64.
func before(odd uint64) uint64 {
	inverse := odd // Newton: each step doubles the bits that are right, of which odd has three
	for range 5 {
		inverse *= 2 - odd*inverse
	}
	return -inverse
}

// A polite cipher lets other callers go first.
type polite struct{ cipher.Block }

func (c polite) Encrypt(dst, src []byte) {
	runtime.Gosched()
	c.Block.Encrypt(dst, src)
}

func TestCallersAtTheSameTimeDoNotDisturbOneAnother(t *testing.T) {
	m := newMask(t, 1e8, "order")
	m.block = polite{m.block}
	var wg sync.WaitGroup
	for caller := range int64(8) {
		wg.Go(func() {
			for x := caller; x < 5_000; x += 8 {
				if back := m.Show(m.Hide(x)); back != x {
					t.Errorf("%d came back as %d", x, back)
				}
			}
		})
	}
	wg.Wait()
}

func TestANumberOutOfRangePanics(t *testing.T) {
	m := newMask(t, 1e8, "order")
	for _, x := range []int64{-1, 1e8, math.MinInt64, math.MaxInt64} {
		for name, call := range map[string]func(int64) int64{"Hide": m.Hide, "Show": m.Show} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s(%d) does not panic", name, x)
					}
				}()
				call(x)
			}()
		}
	}
}

func TestNewRefusesSizesAndTheZeroKey(t *testing.T) {
	for _, n := range []uint64{0, 1, 1<<20 - 1, 1<<63 + 1, math.MaxUint64} {
		if _, err := New(counting, n, "order"); err == nil || !strings.Contains(err.Error(), "2^20 to 2^63") {
			t.Errorf("n %d: %v", n, err)
		}
	}
	if _, err := New(Key{}, 1e8, "order"); err == nil || !strings.Contains(err.Error(), "no key") {
		t.Error(err)
	}
}

func BenchmarkHide(b *testing.B) {
	for _, n := range []uint64{1 << 20, 1e8, 1 << 53, 1 << 63} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m, x := newMask(b, n, "order"), int64(0)
			for b.Loop() {
				x = m.Hide(x)
			}
		})
	}
}
