package randomizer

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// All reports of a mechanism have the same number of bytes, so that their size reveals
// nothing about the data. Reports with indices store each index, then each value, in 4 bytes,
// little endian. Dense reports store each value in Bits/len(Value) bits, two's complement,
// lowest bits first, with zeros at the end; if a value has a single bit, 1 stands for +1 and
// 0 for −1.

// width returns the number of bits of a dense report's value; 0 for reports with indices.
func width(m Mechanism, r *Report) int {
	if len(r.Index) != 0 || len(r.Value) == 0 {
		return 0
	}
	return min(32, m.Facts().Bits/len(r.Value))
}

// AppendReport appends r, a report of m, to dst. It returns an error unless r passes m.Check.
func AppendReport(dst []byte, m Mechanism, r *Report) ([]byte, error) {
	if err := m.Check(r); err != nil {
		return dst, err
	}
	w := width(m, r)
	if w == 0 {
		for _, v := range r.Index {
			dst = binary.LittleEndian.AppendUint32(dst, v)
		}
		for _, v := range r.Value {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(v))
		}
		return dst, nil
	}
	start := len(dst)
	dst = slices.Grow(dst, (len(r.Value)*w+7)/8)
	var acc uint64
	var have int
	for j, v := range r.Value {
		u := uint64(uint32(v))
		if w == 1 {
			if v != 1 && v != -1 {
				return dst[:start], fmt.Errorf("randomizer: value %d of one bit at %d", v, j)
			}
			u = uint64(v+1) / 2
		} else if v<<(32-w)>>(32-w) != v {
			return dst[:start], fmt.Errorf("randomizer: value %d at %d does not fit %d bits", v, j, w)
		}
		acc |= u & (1<<w - 1) << have
		for have += w; have >= 8; have -= 8 {
			dst = append(dst, byte(acc))
			acc >>= 8
		}
	}
	if have > 0 {
		dst = append(dst, byte(acc))
	}
	return dst, nil
}

// DecodeReport reads the encoding that AppendReport wrote into r, which m.NewReport made. A
// report that it accepts passes Check.
func DecodeReport(b []byte, m Mechanism, r *Report) error {
	w := width(m, r)
	if w == 0 {
		if len(b) != 4*(len(r.Index)+len(r.Value)) {
			return fmt.Errorf("randomizer: report of %d bytes, want %d", len(b), 4*(len(r.Index)+len(r.Value)))
		}
		for i := range r.Index {
			r.Index[i] = binary.LittleEndian.Uint32(b[4*i:])
		}
		b = b[4*len(r.Index):]
		for i := range r.Value {
			r.Value[i] = int32(binary.LittleEndian.Uint32(b[4*i:]))
		}
		return m.Check(r)
	}
	if want := (len(r.Value)*w + 7) / 8; len(b) != want {
		return fmt.Errorf("randomizer: report of %d bytes, want %d", len(b), want)
	}
	var acc uint64
	var have, at int
	for j := range r.Value {
		for have < w {
			acc |= uint64(b[at]) << have
			at++
			have += 8
		}
		u := uint32(acc & (1<<w - 1))
		if w == 1 {
			r.Value[j] = int32(2*u) - 1
		} else {
			r.Value[j] = int32(u<<(32-w)) >> (32 - w)
		}
		acc >>= w
		have -= w
	}
	if acc != 0 {
		return fmt.Errorf("randomizer: report with bits left over")
	}
	return m.Check(r)
}
