package optimize

import (
	"fmt"

	"github.com/riffle-dp/riffle/dp"
)

// Algorithm describes a published training procedure: who reports, what a client does to its
// gradient, and the source. All of them share one server, CLDPSGD: average what arrived,
// descend, project.
//
// The mean of a round is over the k reports that arrived, as in the proof of the Self
// Check-In paper's Theorem 4, and not over the γn that were expected. A round without reports
// takes no step.
type Algorithm struct {
	Name          string
	Participation dp.Participation
	// Randomizer describes the client's side. Norm is the p of the ℓp ball that a gradient is
	// clipped to; 0 lets the randomizer choose.
	Randomizer string
	Norm       float64
	Source     string
	// Note says where this program departs from the source, and why.
	Note string
}

// Algorithms returns the procedures whose server is CLDPSGD.
func Algorithms() []Algorithm {
	return []Algorithm{
		{
			Name: "cldp-sgd", Participation: dp.Sampled, Randomizer: "any eps0-LDP randomizer of an lp ball",
			Source: "Girgis, Data, Diggavi 2021 (NeurIPS), Algorithm 1",
		},
		{
			Name: "ldp-sgd", Participation: dp.CheckIn, Randomizer: "l2 ball by PrivUnit or the hemisphere, eps0-LDP", Norm: 2,
			Source: "Self Check-In: Tight Privacy Amplification for Practical Distributed Learning, section 5.2, after Erlingsson et al. 2020 (arXiv:2001.03618)",
			Note:   "differs from cldp-sgd in who reports: each client on its own coin",
		},
		{
			Name: "federated-dp-sgd", Participation: dp.CheckIn, Randomizer: "Gaussian noise on the l2-clipped gradient", Norm: 2,
			Source: "Self Check-In: Tight Privacy Amplification for Practical Distributed Learning, section 5.2",
			Note: "(eps0, delta0)-LDP with the sensitivity 2C of replacement; the conversion of (eps0, delta0) " +
				"by which the paper accounts for it is unsound, and dp.Report has no delta0, so no bound is given for it",
		},
		{
			Name: "laplace-block-sgd", Participation: dp.Once, Randomizer: "discrete Laplace noise on the l1-clipped gradient, scale 2C/eps0", Norm: 1,
			Source: "Chen, Cao, Ge (arXiv:2401.04306), Algorithm 1 and Proposition 3",
			Note: "blocks and order from schedule.Blocks; the paper's bound is an approximation by a normal law, " +
				"ours are the epochs' exact events; the sensitivity is that of a whole client",
		},
	}
}

// FindAlgorithm returns the procedure of that name.
func FindAlgorithm(name string) (Algorithm, error) {
	known := Algorithms()
	names := make([]string, len(known))
	for i, a := range known {
		if a.Name == name {
			return a, nil
		}
		names[i] = a.Name
	}
	return Algorithm{}, fmt.Errorf("optimize: algorithm %q is none of %q", name, names)
}
