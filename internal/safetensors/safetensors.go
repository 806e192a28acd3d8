// Package safetensors writes and reads the safetensors format: an 8-byte little-endian header
// length, a JSON header, and the tensors' bytes.
//
// Marshal has one encoding for each File, so Marshal(Unmarshal(b)) returns b if Marshal wrote
// b. Unmarshal is strict: the tensors must tile the buffer exactly, and anything unknown is
// an error.
//
// Source: github.com/huggingface/safetensors, README, section "Format". It leaves key order
// and padding open. Here the metadata come first with sorted keys, then the tensors in the
// order of their data, without spaces; spaces after the header fill it up to a multiple of 8
// bytes, as the reference does.
package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// dType is an element type. Elements are little-endian.
type dType string

const (
	F32 dType = "F32" // IEEE 754 binary32
	F64 dType = "F64" // IEEE 754 binary64
	I64 dType = "I64" // two's complement
	U8  dType = "U8"  // one byte
)

// size returns the bytes of one element, or 0 for an unknown type.
func (d dType) size() int {
	switch d {
	case F32:
		return 4
	case F64, I64:
		return 8
	case U8:
		return 1
	}
	return 0
}

// Limits of a file, below those of the reference: what is read of a header takes some ten times its bytes.
const (
	// MaxHeader is the largest JSON header in bytes.
	MaxHeader = 16 << 20
	// MaxEntries is the largest number of tensors, and of metadata, which may be empty.
	MaxEntries = 1 << 16
	// MaxDims is the largest number of dimensions of a tensor.
	MaxDims = 64
)

// metadataKey is the one name in the header that does not name a tensor.
const metadataKey = "__metadata__"

// Tensor is a named array.
type Tensor struct {
	// Name is unique in its file, valid UTF-8, and not "__metadata__".
	Name  string
	DType dType
	// Shape lists the lengths of the dimensions, row-major. An empty Shape is
	// one element; a dimension of 0 is no element.
	Shape []int
	// Data holds the elements, little-endian.
	Data []byte
}

// File is the content of a safetensors file.
type File struct {
	// Metadata is free text under free keys; nil leaves the entry out.
	Metadata map[string]string
	// Tensors in the order of their data.
	Tensors []Tensor
}

// Find returns the tensor of that name.
func (f *File) Find(name string) (Tensor, bool) {
	i := slices.IndexFunc(f.Tensors, func(t Tensor) bool { return t.Name == name })
	if i < 0 {
		return Tensor{}, false
	}
	return f.Tensors[i], true
}

// byteLen returns the bytes that dtype and shape ask for.
func byteLen(d dType, shape []int) (int, error) {
	n := d.size()
	if n == 0 {
		return 0, fmt.Errorf("unknown dtype %.80q", string(d))
	}
	for _, s := range shape {
		if s < 0 {
			return 0, fmt.Errorf("dimension %d in shape %s must be at least 0", s, shown(shape))
		}
		if s > 0 && n > math.MaxInt/s {
			return 0, fmt.Errorf("shape %s of %s overflows", shown(shape), d)
		}
		n *= s
	}
	return n, nil
}

// element is what Go has for elements of F32, F64 and I64.
type element interface{ float32 | float64 | int64 }

// New returns a tensor with a copy of v, of F32, F64 or I64.
func New[T element](name string, shape []int, v []T) Tensor {
	data := make([]byte, binary.Size(v))
	_, _ = binary.Encode(data, binary.LittleEndian, v) // data has v's size
	return Tensor{name, dtypeOf[T](), slices.Clone(shape), data}
}

// Values returns the elements of an F32, F64 or I64 tensor, bit for bit.
func Values[T element](t Tensor) ([]T, error) {
	if err := t.check(dtypeOf[T]()); err != nil {
		return nil, err
	}
	v := make([]T, len(t.Data)/binary.Size(T(0)))
	_, err := binary.Decode(t.Data, binary.LittleEndian, v)
	return v, err
}

func dtypeOf[T element]() dType {
	switch any(T(0)).(type) {
	case float32:
		return F32
	case int64:
		return I64
	}
	return F64
}

// check returns an error unless the tensor is of type want and its data as
// long as its shape says.
func (t Tensor) check(want dType) error {
	if t.DType != want {
		return fmt.Errorf("safetensors: tensor %q is %s, want %s", t.Name, t.DType, want)
	}
	n, err := byteLen(t.DType, t.Shape)
	if err != nil {
		return fmt.Errorf("safetensors: tensor %q: %w", t.Name, err)
	}
	if n != len(t.Data) {
		return fmt.Errorf("safetensors: tensor %q: %d bytes of data, want %d for %s %v", t.Name, len(t.Data), n, t.DType, t.Shape)
	}
	return nil
}
