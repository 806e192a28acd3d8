package dataset

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
)

// Digest identifies the rows in their order, and what columns and classes are called.
func (c *CSV) Digest() (d [32]byte) {
	h := sha256.New()
	t := c.Table
	fmt.Fprintf(h, "%q %q %d %d %v\n", c.Columns, c.Labels, t.Dim, t.Classes, t.Blank)
	hashNumbers(h, t.X)
	hashNumbers(h, t.Y)
	hashNumbers(h, t.Targets)
	h.Sum(d[:0])
	return d
}

// Digest identifies the images in their order, their labels and what classes are called.
func (im *Images) Digest() (d [32]byte) {
	h := sha256.New()
	fmt.Fprintf(h, "%q %d %d %d %d %d %v\n", im.Names, im.Width, im.Height, im.Channels, im.Classes, im.Len(), im.Blank)
	h.Write(im.Labels)
	h.Write(im.Pixels)
	h.Sum(d[:0])
	return d
}

// hashNumbers hashes how many numbers there are, and then these.
func hashNumbers[T int32 | float32](h hash.Hash, all []T) {
	fmt.Fprintf(h, "%d\n", len(all))
	var raw []byte
	for part := range slices.Chunk(all, 1<<12) {
		raw, _ = binary.Append(raw[:0], binary.LittleEndian, part) // cannot fail: these numbers have a size
		h.Write(raw)
	}
}
