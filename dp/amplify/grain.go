package amplify

// grain says how finely a pair distinguishes outcomes. Every grain gives a pair that dominates:
// blocks are counted at the end that loses, and splits between nodes only raise the loss.
type grain struct {
	nodes      float64 // nodes of U a deviation
	losses     float64 // relative step between large losses
	scales     float64 // relative step between values of ρ, see threePart
	each       int64   // up to so many values of the reports on the third symbol are listed singly
	listed     int64   // up to so many their probabilities are, and added up in blocks
	chord      float64 // relative width of blocks of reports on the third symbol
	inclusions float64 // relative step between inclusions
	// blocks multiplies the relative widths of blocks of k, of n′ and of clones.
	blocks float64
	tails  float64 // how blocks of the tails of counts grow
	bits   int     // to which numbers of reports are rounded down
}

var (
	// fine adds .1 to .5 % to ε; see the functions that use it.
	fine = grain{nodes: 50, losses: .01, scales: .03, each: 1024, listed: 1024, chord: .01, inclusions: .005, blocks: 1, tails: 1.15, bits: 11}
	// rough adds up to some 2 %, and takes about a twentieth of the time.
	rough = grain{nodes: 12, losses: .05, scales: .1, each: 16, listed: 4096, chord: .02, inclusions: .02, blocks: 10, tails: 1.5, bits: 8}
)

// Rough returns the family whose pairs are coarser, but for the family of Rising and Cap: ε is up to
// some 2 % larger, and the time a fraction. The pairs dominate as all others do; see rough.md.
func (f Family) Rough() Family {
	f.rough = true
	return f
}

func (f Family) grain() grain {
	if f.rough {
		return rough
	}
	return fine
}

// roughBinary is the crowd of a rough pair of binary randomized response: raiseAll serves wherever it holds.
type roughBinary struct{ *binary }

// leastTilted is the variance of S that raiseAll needs.
const leastTilted = 1e4

func newRoughBinary(eps0 float64, k int64, work float64) roughBinary {
	return roughBinary{newGrainedBinary(eps0, k, work, 8, 64, rough)}
}

func (r roughBinary) given(k int64) []float64 { return r.hulled(k, leastTilted) }
