// Package vecsum sums the vectors of many clients so that the sums, and nothing
// else, are revealed, with integer noise from every client: P_1D and P_VEC of
// Cheu, Joseph, Mao, Peng, "Shuffle Private Stochastic Convex Optimization"
// (ICLR 2022, "CJMP"), with their protocol and much smaller parameters.
//
//	Target → Tight or Paper → Params      what a round needs
//	Params → Encoder                      one client's vector to noisy counts
//	counts → Shares, Bits or Mix          to aggregators or a shuffler, and summed
//	sums   → Params.Estimate              unbiased
//	Params → Curve, Epsilon               what it costs ([MethodGDP])
//	         Lemma31, Thm32, RobustA9     what CJMP's theorems say it costs
//	Simulation                            a whole round by its exact law
//
// Privacy is (ε, δ) in nats, one client's data replaced, the number of clients
// public, and concerns the view of whoever sees the summed counts. It rests on:
// the honest fraction of at least MinUsers adding their noise from rng.Secure;
// rounds below MinUsers staying closed, and opened once: with Shares each
// Aggregator sees to that, with Bits and Mix the shuffler must, for what Sum and
// Estimate refuse the analyzer has seen already;
// and the transport's trust assumption. It does not rest on the inputs: they are
// clipped, and the norm is checked after rounding, on integers. A client that
// has no valid input sends [Encoder.Blank].
//
// Nothing here stops poisoning: a client that leaves the range is not found out.
// Package mechanism/vecsum/prio3 is a transport whose aggregators refuse such a client; what
// one can do that stays in the range is written there.
// Nothing runs in constant time: how long noise takes to draw depends on it.
//
// Noise, grid and counts are in grid steps of 2·Radius/Grid; Variance and
// estimates in units of the input. vecsum.md has the proofs.
package vecsum
