package optimize_test

import (
	"fmt"

	"github.com/riffle-dp/riffle/learn/optimize"
)

// A million clients, logistic regression in 50 dimensions on rows of norm 1,
// (1, 1e-6)-DP in all: μ = 1/4.2249.
func ExampleNewPlan() {
	problem := optimize.Problem{
		Dim: 50, Clients: 1e6, Lipschitz: 1, Smoothness: .25, Radius: 8,
		Noise: optimize.GaussianNoise{Lipschitz: 1, Mu: 1 / 4.2249, Overhead: .05},
	}
	plan, err := optimize.NewPlan("agd", problem, optimize.Overrides{})
	if err != nil {
		fmt.Println(err)
		return
	}
	o, err := plan.NewOptimizer()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d rounds, noise %.4f, excess loss at most %.3f\n", plan.Batches.Rounds, plan.Stages[0].Sigma, plan.Bound)

	mean := make([]float64, problem.Dim)
	for t := int64(1); t <= plan.Batches.Rounds; t++ {
		from, to := plan.Batches.Places(t)
		// Here clients from … to−1 send clipped gradients at o.Point(), and
		// mean becomes their noisy mean. We leave it at 0.
		_, _ = from, to
		if err := o.Step(mean); err != nil {
			fmt.Println(err)
			return
		}
	}
	fmt.Println(o.Step(mean))
	// Output:
	// 167 rounds, noise 0.0014, excess loss at most 0.013
	// optimize: all rounds are done
}
