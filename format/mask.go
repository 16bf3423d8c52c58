package format

import (
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"sync/atomic"

	"github.com/natsid/natsid/internal/mask"
)

// ErrNoKey is returned where a format masks numbers under a key that [Parse] was not given.
var ErrNoKey = errors.New("format: there is no key for the mask")

// A Key is a secret with a name, under which {mask:NAME:WIDTH} masks numbers. Keep its file: without it, texts cannot
// be read. To print a Key shows name and fingerprint.
type Key = mask.Key

// NewKey returns a new random key. A name is 1 to 32 of a-z, 0-9 and '-', without '-' in front.
func NewKey(name string) (Key, error) { return mask.NewKey(name) }

// ReadKeyFile reads a key that [Key.WriteFile] or `natsid key new` wrote. The warning says that others can read the
// file, too; it is "" if they cannot.
func ReadKeyFile(path string) (k Key, warning string, err error) { return mask.ReadKeyFile(path) }

// Keys are the keys of a mask; a format uses the one that it names.
func Keys(keys ...Key) Option { return func(f *Format) { f.keys = append(f.keys, keys...) } }

// A masking masks the numbers below n. It is safe for concurrent use.
type masking struct {
	name string
	n    uint64
	key  *Key // nil: Parse was not given it
	last atomic.Pointer[dated]
}

// A dated mask is that of one period.
type dated struct {
	date int64
	*mask.Mask
}

// CheckKey returns an [ErrNoKey] with the name of the key if the format has a mask whose key Parse was not given: it
// then neither writes nor reads IDs, but has its Period and Max.
func (f *Format) CheckKey() error {
	if f.mask == nil || f.mask.key != nil {
		return nil
	}
	return fmt.Errorf("%w: it is named %s", ErrNoKey, f.mask.name)
}

// turn returns the number of an ID as Hide or Show of its period's mask make it; without a mask, the number.
func (f *Format) turn(way func(*mask.Mask, int64) int64, id, n int64) (int64, error) {
	if err := f.CheckKey(); err != nil || f.mask == nil {
		return n, err
	}
	date := int64(0)
	if f.period != None {
		date = id / f.period.Size()
	}
	last := f.mask.last.Load()
	if last == nil || last.date != date { //mutant:last
		var err error
		if last, err = f.mask.of(date); err != nil {
			return n, err
		}
	}
	return way(last.Mask, n), nil
}

// of returns the mask of a date such as 20261125, 202611 or 2026, and keeps it; 0 is that of no period.
func (m *masking) of(date int64) (*dated, error) {
	tweak := ""
	if date > 0 {
		tweak = strconv.FormatInt(date, 10) //mutant:tweak
	}
	made, err := mask.New(*m.key, m.n, tweak)
	if err != nil {
		return nil, err
	}
	d := &dated{date, made}
	m.last.Store(d)
	return d, nil
}

// addMask adds a number that is masked.
func (p *parser) addMask(name string, v part) (fault string) {
	if p.layout != nil {
		return "snowflakes are not masked: want {id}"
	}
	p.mask = &masking{name: name}
	for _, k := range p.keys {
		switch m := p.mask; {
		case k.Name() != name:
		case m.key != nil && m.key.Fingerprint() != k.Fingerprint():
			return "two different keys are named " + name
		default:
			m.key = &k
		}
	}
	return p.add(v)
}

// seed returns the digit that a check digit begins with, so that another key of the same name is noticed mostly.
func (m *masking) seed(radix int) int64 {
	if m == nil || m.key == nil {
		return 0
	}
	n, _ := strconv.ParseUint(m.key.Fingerprint(), 16, 64) // it has 16 digits
	return int64(n % uint64(radix))
}

// boundMask sets what is masked: all numbers of the width.
func (p *parser) boundMask(v *part) (fault string) {
	n, over := uint64(1), uint64(0)
	for range v.width {
		if over, n = bits.Mul64(n, uint64(len(v.set))); over > 0 || n > uint64(p.max)+1 {
			return fmt.Sprintf("want a width with at most %d numbers to mask", uint64(p.max)+1)
		}
	}
	if n < mask.MinSize {
		return fmt.Sprintf("want a width with at least %d numbers to mask: fewer are searched in no time", mask.MinSize)
	}
	p.mask.n, p.max, v.max = n, int64(n-1), int64(n-1)
	return ""
}
