// Package riffle is private distributed learning in the shuffle model of
// differential privacy. It holds no code: this comment is the tour. Import
// paths begin with github.com/riffle-dp/riffle.
//
// What a protocol costs: package account takes what happened, an event of
// package dp, and returns an upper bound on ε or δ. The bounds come from
// dp/amplify; dp/pld, dp/rdp and dp/gdp compose them over rounds.
// protocol/ledger keeps a budget of events and refuses what would exceed it.
//
// What leaves a client: mechanism/randomizer turns a vector into one report
// that is private by itself, and mechanism/vecsum into integers that are
// private once they are summed. mechanism/sample has the exact samplers and
// mechanism/rng the sources of randomness.
//
// How a model is learned: learn/dataset, learn/feature and learn/model compute
// the clients' gradients, and learn/optimize takes the steps.
//
// Who does what: protocol/client, protocol/shuffler and protocol/coordinator
// hold the roles as pure functions, protocol/wire and protocol/envelope their
// messages. run/simulate drives the roles in one process, and run/train adds a
// run directory that survives crashes. Packages below service run the same
// roles over a network, and cmd/riffle is the command line.
package riffle
