// Package vecsum sums the vectors of many clients so that the sums, and nothing else, are
// revealed, with integer noise from every client: P_1D and P_VEC of Cheu, Joseph, Mao, Peng,
// "Shuffle Private Stochastic Convex Optimization" (ICLR 2022, "CJMP"), with their protocol
// and much smaller parameters.
//
//	Target → Tight → Params               what a round needs
//	Params → Encoder                      one client's vector to noisy counts
//	counts → Shares or NewShuffled        to aggregators or a shuffler, and summed
//	sums   → Params.Estimate              unbiased
//	Params → Curve, Epsilon               what it costs ([MethodGDP])
//	         CJMP                         what CJMP's theorems say it costs
//	Encoder.Round, Params.AddNoise        a whole simulated round by its exact law
//
// Privacy is (ε, δ) in nats for one client's data replaced and a public number of clients. It
// concerns the view of whoever sees the summed counts. It rests on three things. First, at
// least the fraction Honest of MinUsers clients adds noise from rng.Secure. Second, rounds
// below MinUsers stay closed, and every other round is opened once. With Shares each
// Aggregator enforces that; with the transports of [NewShuffled] the shuffler must,
// because the analyzer has already seen what Sum and Estimate refuse. Third, the transport's
// trust assumption. Privacy does not rest on the inputs: they are clipped, and the norm is
// checked after rounding, on integers. A client without a valid input encodes the
// zero vector.
//
// Nothing here stops poisoning: a client that leaves the range is not detected. Package
// mechanism/vecsum/prio3 is a transport whose aggregators refuse such a client; its comment
// says what a client can do within the range. Nothing runs in constant time: the time to draw
// noise depends on the noise.
//
// Noise, grid and counts are in grid steps of 2·Radius/Grid; Variance and estimates in units
// of the input. vecsum.md has the proofs.
package vecsum
