package vecsum

import (
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// ErrInput is wrapped by the errors of an input that cannot be encoded. The client must not
// reveal such an error, because whether it takes part must not depend on its data: it encodes
// the zero vector instead.
var ErrInput = errors.New("vecsum: input")

// Encoder turns one client's vector into counts. The vector is clipped to the ball, shifted
// to 0 … g, and rounded at random to the grid until the rounded vector passes the norm check;
// then noise is added. An Encoder must not be used by two goroutines at once.
//
// It is exactly private: the norm check and the noise work on integers, and privacy does not
// rest on how coordinates were rounded. It is unbiased to 2^−32 grid steps a coordinate and
// √d·1e-9 steps for the norm check ([NormBeta]). The running time depends on the input,
// because rounding may be repeated.
type Encoder struct {
	params Params
	noise  sampler
	words  []uint64
	work   []int64 // of the noise; made when noise is first drawn
}

// NewEncoder validates p.
func NewEncoder(p Params) (*Encoder, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	noise, err := p.Noise.newSampler(1)
	if err != nil {
		return nil, fmt.Errorf("vecsum: %w", err)
	}
	return &Encoder{params: p, noise: noise, words: make([]uint64, (p.Dim+1)/2)}, nil
}

// Encode overwrites counts, of length Streams, with the noisy counts of x. If it returns an
// error, counts are zero and reveal nothing of x.
func (e *Encoder) Encode(src rng.Source, x []float32, counts []int64) error {
	if err := round(e, src, x, counts); err != nil {
		return err
	}
	if e.work == nil {
		e.work = make([]int64, e.params.Streams())
	}
	e.noise.add(src, counts, e.work)
	clear(e.work) // noise must not stay in memory
	return nil
}

// retries is the number of times that rounding is repeated before it goes towards the middle
// of the grid, which always passes the check.
const retries = 64

// Round overwrites counts with x rounded to the grid: Encode without the noise, for a
// simulation that draws the noise of all clients at once with AddNoise. Rounded values are at
// most Grid, which 32 bits hold. Its result is not private.
func (e *Encoder) Round(src rng.Source, x []float32, counts []int32) error {
	return round(e, src, x, counts)
}

// round is Round, into counts of any size.
func round[C int32 | int64](e *Encoder, src rng.Source, x []float32, counts []C) error {
	p := &e.params
	if len(counts) != p.Streams() {
		return fmt.Errorf("vecsum: %d counts for %d streams", len(counts), p.Streams())
	}
	if len(x) != p.Dim {
		clear(counts)
		return fmt.Errorf("%w has %d coordinates, not %d", ErrInput, len(x), p.Dim)
	}
	if p.Ones != 0 {
		return encodeOnes(x, p.Ones, p.Grid, counts)
	}
	var square float64
	for _, v := range x {
		square += float64(v) * float64(v)
	}
	if !(square <= math.MaxFloat64) { // float32 squares cannot overflow
		clear(counts)
		return fmt.Errorf("%w holds a value that is not finite", ErrInput)
	}
	scale := float64(p.Grid) / 2 / math.Max(p.Radius, math.Sqrt(square))
	for range retries {
		src.Fill(e.words)
		if once(e, x, scale, counts) <= p.Norm {
			return nil
		}
	}
	for j, v := range x {
		inwards(p, j, float64(v)*scale, counts)
	}
	return nil
}

// once rounds x with the random words already drawn and returns the squared norm in half
// steps.
func once[C int32 | int64](e *Encoder, x []float32, scale float64, counts []C) int64 {
	grid, d := e.params.Grid, e.params.Dim
	half, top := float64(grid)/2, float64(grid)
	var norm int64
	if e.params.Split {
		for j, v := range x {
			y := math.Min(math.Abs(float64(v)*scale), half)
			k := roundAt(y, e.words[j/2]>>(j&1*32))
			norm += 4 * k * k
			counts[j], counts[d+j] = C(k), 0
			if v < 0 {
				counts[j], counts[d+j] = 0, C(k)
			}
		}
		return norm
	}
	words, counts := e.words[:(len(x)+1)/2], counts[:len(x)]
	for j, v := range x {
		y := float64(v)*scale + half
		if !(y >= 0 && y <= top) {
			y = math.Max(0, math.Min(y, top))
		}
		k := roundAt(y, words[j/2]>>(j&1*32))
		c := 2*k - grid
		norm += c * c
		counts[j] = C(k)
	}
	return norm
}

// roundAt rounds y, from 0 to 2^24, up if the first 32 bits of its fraction are above the low
// 32 bits of r, otherwise down.
func roundAt(y float64, r uint64) int64 {
	return (int64(y*(1<<32)) + int64(^r&math.MaxUint32)) >> 32
}

// inwards rounds coordinate j, which lies y steps from the middle of the grid, towards the
// middle.
func inwards[C int32 | int64](p *Params, j int, y float64, counts []C) {
	d, half := p.Dim, float64(p.Grid)/2
	y = math.Max(-half, math.Min(y, half))
	switch {
	case p.Split:
		counts[j], counts[d+j] = C(math.Max(0, y)), C(math.Max(0, -y))
	case y > 0:
		counts[j] = C(math.Floor(y + half))
	default:
		counts[j] = C(math.Ceil(y + half))
	}
}

// CheckSum refuses cohorts outside MinUsers … Users, and counts that no such cohort has. It
// never refuses honest sums with binomial noise; with unbounded noise it does so with
// probability e^−60 a count.
func (p Params) CheckSum(counts []int64, clients int64) error {
	if err := p.Validate(); err != nil {
		return err
	}
	if err := p.CheckCohort(clients); err != nil {
		return err
	}
	if len(counts) != p.Streams() {
		return fmt.Errorf("vecsum: %d counts for %d coordinates in %d streams", len(counts), p.Dim, p.Streams())
	}
	below, above := p.Noise.reach(clients)
	above += float64(clients) * float64(p.top())
	for j, c := range counts {
		if !(float64(c) >= -below && float64(c) <= above) {
			return fmt.Errorf("vecsum: count %d is %d, outside %g … %g", j, c, -below, above)
		}
	}
	return nil
}

// Estimate stores in sum the unbiased estimate of the sum of all clients' inputs, in the units
// of the inputs. counts are the summed counts, and clients is the number of clients. It refuses
// what CheckSum does.
func (p Params) Estimate(sum []float64, counts []int64, clients int64) error {
	if err := p.CheckSum(counts, clients); err != nil {
		return err
	}
	if len(sum) != p.Dim {
		return fmt.Errorf("vecsum: %d sums for %d coordinates", len(sum), p.Dim)
	}
	step, n := p.step(), float64(clients)
	for j := range sum {
		switch {
		case p.Split:
			sum[j] = step * float64(counts[j]-counts[p.Dim+j])
		case p.Ones != 0:
			sum[j] = step * (float64(counts[j]) - n*p.Noise.mean())
		default:
			sum[j] = step*(float64(counts[j])-n*p.Noise.mean()) - n*p.Radius
		}
	}
	return nil
}

// CheckCohort refuses to open a sum of too few clients, whose noise would be too
// small, and of too many, which may wrap around the modulus.
func (p Params) CheckCohort(clients int64) error {
	p = p.withDefaults()
	if clients < p.MinUsers {
		return fmt.Errorf("vecsum: %d clients are fewer than min users = %d: nothing is opened", clients, p.MinUsers)
	}
	if clients > p.Users {
		return fmt.Errorf("vecsum: %d clients are more than users = %d: the modulus may overflow", clients, p.Users)
	}
	return nil
}
