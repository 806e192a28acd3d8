package randomizer

import (
	"sync"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// noiseBlock has room for the draws that addNoise takes from a table at a time.
type noiseBlock [512]int64

var noiseBlocks = sync.Pool{New: func() any { return new(noiseBlock) }}

// addNoise adds a draw of the table to each value and cuts it at ±limit.
func addNoise(src rng.Source, t *sample.Table, value []int32, limit int64) {
	block := noiseBlocks.Get().(*noiseBlock)
	for len(value) > 0 {
		n := min(len(value), len(block))
		noise := block[:n]
		t.Fill(src, noise)
		for i, z := range noise {
			value[i] = int32(max(-limit, min(int64(value[i])+z, limit)))
		}
		value = value[n:]
	}
	clear(block[:]) // noise must not stay in memory
	noiseBlocks.Put(block)
}
