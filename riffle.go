// Package riffle is private distributed learning in the shuffle model of
// differential privacy. This package holds no code; it is the tour.
//
// What a protocol costs: [github.com/riffle-dp/riffle/account] answers from
// what happened, an event of [github.com/riffle-dp/riffle/dp], with bounds of
// package amplify composed in packages pld and rdp. Package ledger keeps a
// budget of events and refuses what would exceed it.
//
// What leaves a client: package randomizer turns a vector into one report that
// is private by itself, with the exact samplers of package sample and the
// sources of randomness of package rng.
//
// How a model is learned: packages dataset, feature and model give clients
// their gradients, package optimize takes the steps, and the roles' round
// functions lie in packages client, shuffler and coordinator. Package simulate
// drives them in one process; package train adds a run directory that survives
// crashes; cmd/riffle is the command line.
package riffle
