package snowflake

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// LeafEpoch is Leaf's and Twitter's epoch, 2010-11-04 01:42:54.657 UTC, in Unix milliseconds.
const LeafEpoch = 1288834974657

var (
	// Leaf is the default layout: ticks of 1 ms, 1024 machines, 4096 IDs a tick.
	Leaf = Layout{Time: 41, Worker: 10, Sequence: 12, Epoch: LeafEpoch, Unit: 1}
	// JS53 has IDs below 2^53, which a JavaScript number represents exactly: ticks of 1 ms, 64 machines, 64 IDs a tick.
	JS53 = Layout{Time: 41, Worker: 6, Sequence: 6, Epoch: LeafEpoch, Unit: 1}
	// Article is the example of Leaf's articles: ticks of 1 ms since 2018-09-22
	// 00:00 +08:00, 4 sites of 128 machines, 16 businesses, 128 IDs a tick.
	Article = Layout{Time: 39, Site: 2, Worker: 7, Business: 4, Sequence: 7, Epoch: 1537545600000, Unit: 1}
)

var presets = map[string]Layout{"leaf": Leaf, "js53": JS53, "article": Article}

// ParseLayout returns the layout that s describes: leaf, js53 or article; or widths in bits, time+machine+sequence or
// time+site+machine+business+sequence, with Leaf's epoch. Widths may be followed by the length of a tick, such as @10ms
// or @1s; it is 1 ms without. A layout that is returned without an error is valid.
func ParseLayout(s string) (Layout, error) {
	if l, ok := presets[s]; ok {
		return l, nil
	}
	l := Layout{Epoch: LeafEpoch, Unit: 1}
	split, unit, hasUnit := strings.Cut(s, "@")
	widths := strings.Split(split, "+")
	fields := []*int{&l.Time, &l.Site, &l.Worker, &l.Business, &l.Sequence}
	if len(widths) == 3 {
		fields = []*int{&l.Time, &l.Worker, &l.Sequence}
	}
	ok := len(widths) == len(fields)
	for i := 0; ok && i < len(fields); i++ {
		width, err := strconv.ParseUint(widths[i], 10, 8)
		*fields[i], ok = int(width), err == nil
	}
	if hasUnit {
		d, err := time.ParseDuration(unit)
		l.Unit, ok = d.Milliseconds(), ok && err == nil && d%time.Millisecond == 0
	}
	if !ok {
		return Layout{}, fmt.Errorf("snowflake: layout %q: want leaf, js53, article, or widths in bits as "+
			"time+machine+sequence or time+site+machine+business+sequence, such as 41+10+12 or 39+2+7+4+7, "+
			"followed by @10ms for ticks of 10 ms", s)
	}
	if err := l.Validate(); err != nil {
		return Layout{}, err
	}
	return l, nil
}

// String returns the layout without its epoch, in the form that [ParseLayout] accepts: 41+10+12, or all five widths if
// it has site or business bits, and the length of a tick unless that is 1 ms.
func (l Layout) String() string {
	s := fmt.Sprintf("%d+%d+%d", l.Time, l.Worker, l.Sequence)
	if l.Site != 0 || l.Business != 0 {
		s = fmt.Sprintf("%d+%d+%d+%d+%d", l.Time, l.Site, l.Worker, l.Business, l.Sequence)
	}
	if l.Unit != 1 {
		s += fmt.Sprintf("@%v", time.Duration(l.Unit)*time.Millisecond)
	}
	return s
}
