package experiment

import (
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/train"
)

func e3() Experiment {
	mlp := func(change func(*train.Config)) *train.Config {
		return plain(func(c *train.Config) {
			c.Model, c.Rounds = "pca-mlp", 500
			c.Participation, c.K = string(dp.Once), 5500
			change(c)
		})
	}
	return Experiment{
		Name: "e3", Title: "Principal components, a small network and Laplace noise, 50 epochs", Source: "Chen, Cao, Ge 2024 (EAB; arXiv:2401.04306), section 4",
		Settings: []Setting{
			{Name: "none", Paper: true, Train: plain(func(c *train.Config) {
				c.Model, c.Trust, c.Participation, c.K, c.Rounds, c.LR = "pca-mlp", "none", string(dp.Sampled), 64, 43000, "0.05"
			})},
			{Name: "laplace", Method: "eab-thm3", Train: mlp(func(c *train.Config) { c.Randomizer, c.Eps0, c.Clip, c.LR = "laplace", 8, 1, "1" })},
		},
	}
}

var ldpRate, privunitRate, federatedRate, distributedRate, longRate = "1", "1", "1", "1", "1"
