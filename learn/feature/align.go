package feature

import "math"

// align resamples an image so that its ink stands upright and centred. If spread > 0, the
// ink's standard deviation from side to side becomes spread pixels. align uses the moments of
// this image only.
//
// Take the ink as mass, with centre (cx, cy) and second central moments xx, xy, yy. The shear
// a = xy/yy makes x − cx − a(y − cy) uncorrelated with y, and leaves the variance xx −
// xy²/yy. Pixel (x, y) of the result is taken, by bilinear interpolation, from
//
// x' = cx + k(x − x₀) + a(y − y₀),  y' = cy + y − y₀,
//
// (x₀, y₀) the middle of the image and k the ratio of the deviation to spread, cut to [1/2,
// 2]. The shear is cut to [−2, 2]; ink on one row has none. Pixels outside the image count as
// 0. An image without ink gives zeros. dst holds the levels, 0 to 255.
func align(img []byte, width, height int, spread float64, dst []float32) {
	var mass, sx, sy, sxx, sxy, syy int64
	for y := range height {
		for x, v := range img[y*width : (y+1)*width] {
			if v == 0 {
				continue
			}
			// The sums are exact: at most 2²⁴ pixels of 2⁸ at coordinates below 2¹².
			m, x, y := int64(v), int64(x), int64(y)
			mass += m
			sx += m * x
			sy += m * y
			sxx += m * x * x
			sxy += m * x * y
			syy += m * y * y
		}
	}
	if mass == 0 {
		clear(dst)
		return
	}
	n := float64(mass)
	cx, cy := float64(sx)/n, float64(sy)/n
	xx := float64(sxx)/n - cx*cx
	xy := float64(sxy)/n - cx*cy
	yy := float64(syy)/n - cy*cy
	const flat = 1e-6 // variance in pixels² below which ink is on one line
	a := 0.0
	if yy > flat {
		a = max(-2, min(2, xy/yy))
		xx += a * (a*yy - 2*xy)
	}
	k := 1.0
	if spread > 0 {
		k = max(0.5, min(2, math.Sqrt(max(0, xx))/spread))
	}
	for y := range height {
		v := float64(y) - float64(height-1)/2
		fromY := cy + v
		start := cx + a*v - k*float64(width-1)/2
		y0 := math.Floor(fromY)
		fy := float32(fromY - y0)
		upper, lower := row(img, width, height, int(y0)), row(img, width, height, int(y0)+1)
		for x := range width {
			fromX := start + k*float64(x)
			x0 := math.Floor(fromX)
			fx := float32(fromX - x0)
			i := int(x0)
			top := (1-fx)*pixel(upper, i) + fx*pixel(upper, i+1)
			bottom := (1-fx)*pixel(lower, i) + fx*pixel(lower, i+1)
			dst[y*width+x] = (1-fy)*top + fy*bottom
		}
	}
}

// row returns row y of the image, or nil outside.
func row(img []byte, width, height, y int) []byte {
	if y < 0 || y >= height {
		return nil
	}
	return img[y*width : (y+1)*width]
}

// pixel returns the level at x, or 0 outside.
func pixel(row []byte, x int) float32 {
	if uint(x) >= uint(len(row)) {
		return 0
	}
	return float32(row[x])
}
