package browser_test

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"slices"
)

// Two pictures are alike if, of their squares of side pixels, at most maxUnlike differ by colourStep or more in the
// mean of red, green or blue, from 0 to 255, and if their heights differ by at most maxHeight. Another build of the
// browser draws letters in other places: with other positions of letters, 16 squares differed, and with all a pixel
// lower 4. A column that is missing changes 130, another colour of red texts 75.
const (
	side       = 16
	colourStep = 16
	maxUnlike  = 40
	maxHeight  = 8
)

// unlike says how a picture differs from the one that is wanted, "" if they are alike.
func unlike(want, got image.Image) string {
	w, g := plain(want), plain(got)
	high, low := w.Rect.Dy(), g.Rect.Dy()
	if w.Rect.Dx() != g.Rect.Dx() || max(high-low, low-high) > maxHeight {
		return fmt.Sprintf("its size is %v, want %v", g.Rect.Size(), w.Rect.Size())
	}
	var others []image.Point
	for y := 0; y+side <= min(high, low); y += side {
		for x := 0; x+side <= w.Rect.Dx(); x += side {
			if differ(w, g, x, y) {
				others = append(others, image.Pt(x, y))
			}
		}
	}
	if len(others) <= maxUnlike {
		return ""
	}
	return fmt.Sprintf("%d squares differ, want at most %d; the first is at %v", len(others), maxUnlike, others[0])
}

// differ reports whether the squares at a point differ.
func differ(w, g *image.RGBA, x, y int) bool {
	var sums [3]int
	for dy := range side {
		a, b := w.Pix[w.PixOffset(x, y+dy):], g.Pix[g.PixOffset(x, y+dy):]
		for i := range side {
			for c := range sums {
				sums[c] += int(a[4*i+c]) - int(b[4*i+c])
			}
		}
	}
	return slices.ContainsFunc(sums[:], func(sum int) bool { return max(sum, -sum) >= colourStep*side*side })
}

// plain returns a picture whose corner is 0,0.
func plain(p image.Image) *image.RGBA {
	out := image.NewRGBA(image.Rectangle{Max: p.Bounds().Size()})
	draw.Draw(out, out.Rect, p, p.Bounds().Min, draw.Src)
	return out
}

// A picture is kept with at most maxColours: those of areas, and as few as do for the edges of letters.
const (
	maxColours = 32
	fewer      = 64 // how far apart two colours are, at least
	area       = 500
)

// reduced returns a picture with few colours.
func reduced(picture image.Image) *image.Paletted {
	p := plain(picture)
	counts := make(map[color.RGBA]int)
	for y := range p.Rect.Dy() {
		for x := range p.Rect.Dx() {
			counts[p.RGBAAt(x, y)]++
		}
	}
	var all []color.RGBA
	for c := range counts {
		all = append(all, c)
	}
	slices.SortFunc(all, func(x, y color.RGBA) int {
		return cmp.Or(cmp.Compare(counts[y], counts[x]), bytes.Compare([]byte{x.R, x.G, x.B}, []byte{y.R, y.G, y.B}))
	})
	var palette color.Palette
	for _, c := range all {
		isArea := len(palette) == 0 || counts[c] > p.Rect.Dx()*p.Rect.Dy()/area
		if len(palette) < maxColours && (isArea || far(c, palette[palette.Index(c)].(color.RGBA))) {
			palette = append(palette, c)
		}
	}
	out := image.NewPaletted(p.Rect, palette)
	draw.Draw(out, out.Rect, p, image.Point{}, draw.Src)
	return out
}

// far reports whether two colours are far apart.
func far(x, y color.RGBA) bool {
	for _, d := range []int{int(x.R) - int(y.R), int(x.G) - int(y.G), int(x.B) - int(y.B)} {
		if max(d, -d) > fewer {
			return true
		}
	}
	return false
}

// encoded returns a picture as a file.
func encoded(p image.Image) []byte {
	var out bytes.Buffer
	e := png.Encoder{CompressionLevel: png.BestCompression}
	if err := e.Encode(&out, p); err != nil {
		panic(err) // cannot be: it is written to memory
	}
	return out.Bytes()
}
