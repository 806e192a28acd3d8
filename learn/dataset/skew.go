package dataset

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// SkewConfig describes a partition of examples whose clients see the classes
// in different proportions. Exactly one of Concentration and Shards is set.
type SkewConfig struct {
	// Clients is the number of parts. Required, at least 1.
	Clients int
	// Concentration is α, 1e-6 to 1e6: every class is divided among the clients by its
	// own draw from Dirichlet(α, …, α). Small α gives a class to few clients,
	// large α to all alike.
	// Source: Hsu, Qi, Brown 2019, arXiv:1909.06335, with the roles of class
	// and client exchanged, so that every example is dealt out.
	Concentration float64
	// Shards is s ≥ 1: the examples, sorted by class, are cut into Clients·s
	// runs whose lengths differ by at most 1, and every client gets s of them
	// at random. Needs Clients·s ≤ examples.
	// Source: McMahan et al. 2017, arXiv:1602.05629, section 3.
	Shards int
	// Seed chooses the partition.
	Seed uint64
}

// SkewPartition deals the examples with the given classes out to clients. Each
// example is in exactly one part; parts are sorted. With Concentration a part
// may be empty. The same arguments give the same partition; with Concentration
// a CPU that rounds logarithms differently may move an example at a border.
//
// It serves experiments only: it looks at all clients' labels.
func SkewPartition(labels []int32, c SkewConfig) ([][]int, error) {
	n := len(labels)
	if n == 0 {
		return nil, fmt.Errorf("dataset: partition of no examples")
	}
	for i, y := range labels {
		if y < 0 {
			return nil, fmt.Errorf("dataset: class %d of example %d must be at least 0", y, i)
		}
	}
	if c.Clients < 1 {
		return nil, fmt.Errorf("dataset: partition among %d clients needs at least 1", c.Clients)
	}
	if (c.Concentration != 0) == (c.Shards != 0) {
		return nil, fmt.Errorf("dataset: partition with concentration = %v and shards = %d needs exactly one of them", c.Concentration, c.Shards)
	}
	src := rng.Replay(c.Seed, domainSkew)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	// After this shuffle the stable sort leaves each class in random order.
	sample.Shuffle(src, order)
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(labels[a], labels[b]) })
	parts := make([][]int, c.Clients)
	if c.Shards != 0 {
		if c.Shards < 0 || c.Shards > n/c.Clients {
			return nil, fmt.Errorf("dataset: %d shards for each of %d clients must be at least 1 and at most the %d examples in all", c.Shards, c.Clients, n)
		}
		dealShards(src, order, parts, c.Shards)
	} else {
		if !(c.Concentration >= 1e-6 && c.Concentration <= 1e6) {
			return nil, fmt.Errorf("dataset: concentration = %v must lie between 1e-6 and 1e6", c.Concentration)
		}
		for from := 0; from < n; {
			to := from + 1
			for to < n && labels[order[to]] == labels[order[from]] {
				to++
			}
			dealDirichlet(src, order[from:to], parts, c.Concentration)
			from = to
		}
	}
	for _, part := range parts {
		slices.Sort(part)
	}
	return parts, nil
}

func dealShards(src rng.Source, order []int, parts [][]int, each int) {
	shards := make([]int, len(parts)*each)
	for i := range shards {
		shards[i] = i
	}
	sample.Shuffle(src, shards)
	// shards·n may overflow, so the products use quotient and remainder.
	q, r := len(order)/len(shards), len(order)%len(shards)
	start := func(s int) int { return s*q + min(s, r) }
	for i, s := range shards {
		parts[i/each] = append(parts[i/each], order[start(s):start(s+1)]...)
	}
}

// dealDirichlet divides one class at the cumulative shares of a Dirichlet draw.
func dealDirichlet(src rng.Source, class []int, parts [][]int, alpha float64) {
	share := make([]float64, len(parts))
	top := math.Inf(-1)
	for i := range share {
		share[i] = logGamma(src, alpha)
		top = max(top, share[i])
	}
	var sum float64
	for i := range share {
		share[i] = math.Exp(share[i] - top)
		sum += share[i]
	}
	var cumulative float64
	from := 0
	for i := range parts {
		cumulative += share[i]
		to := min(len(class), int(math.Round(float64(len(class))*(cumulative/sum))))
		if i == len(parts)-1 {
			to = len(class)
		}
		parts[i] = append(parts[i], class[from:to]...)
		from = to
	}
}

// logGamma returns the logarithm of a Gamma(alpha, 1) draw: for small alpha the
// draw itself would underflow. Source: Marsaglia, Tsang, "A simple method for
// generating gamma variables", ACM TOMS 26(3), 2000; below 1 by their
// Gamma(α) = Gamma(α+1)·U^(1/α).
func logGamma(src rng.Source, alpha float64) float64 {
	boost := 0.0
	if alpha < 1 {
		boost = -sample.Exponential(src) / alpha
		alpha++
	}
	d := alpha - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := sample.Normal(src)
		v := 1 + float64(c*x)
		if v <= 0 {
			continue
		}
		logV := 3 * math.Log(v)
		// log U = −Exponential.
		if -sample.Exponential(src) < float64(x*x/2)+float64(d*(1-v*v*v+logV)) {
			return boost + math.Log(d) + logV
		}
	}
}
