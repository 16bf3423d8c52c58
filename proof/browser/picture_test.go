package browser_test

import (
	"fmt"
	"image"
	"image/draw"
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
