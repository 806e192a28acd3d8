package main

import (
	"slices"
	"strings"
)

// packages are the names with which errors of the module's packages begin.
var packages = []string{"account", "aggregator", "amplify", "audit", "batch", "bhttp", "certificate", "client", "config", "coordinator", "dashboard", "dataset",
	"document", "dp", "durable", "endpoint", "envelope", "exchange", "experiment", "external", "feature", "figures", "gdp", "kernel", "ledger", "load", "measure", "mechanism", "mnist", "model",
	"monotone", "netlab", "opener", "operate", "optimize", "picture", "pine", "plan", "pld", "prio3", "proved", "randomizer", "rdp", "registrar", "relay", "report", "rng", "safetensors", "sample", "seed",
	"schedule", "shuffler", "simulate", "solve", "statistic", "store", "tail", "toeplitz", "token", "tracedisk", "train", "vecsum", "wire"}

// computing are the names of the packages that only compute and belong to no role or
// configuration. Their names tell a reader nothing, so plainly removes them from the middle of
// an error too.
var computing = []string{"account", "amplify", "dataset", "dp", "feature", "gdp", "literature", "mechanism", "optimize", "pld", "randomizer", "rdp", "rng", "safetensors", "sample",
	"schedule", "simulate", "statistic", "tail", "toeplitz", "vecsum", "wire"}

// plainly words an error for people: without package names at its beginning, and with a line
// for each of several joined errors.
func plainly(text string) string { return withoutPackages(text, nil) }

// withoutPackages is plainly for a command with arguments: it keeps a word that is an
// argument, which may be the name of a file.
func withoutPackages(text string, args []string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines {
		// If several roles run in one process, the role is kept.
		role := ""
		if first, rest, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(first, "role ") {
			role, line = first+": ", rest
		}
		words := strings.Split(line, ": ")
		given := func(word string) bool {
			return slices.ContainsFunc(args, func(a string) bool {
				_, value, ok := strings.Cut(a, "=")
				return a == word || ok && value == word
			})
		}
		for len(words) > 1 && slices.Contains(packages, words[0]) && !given(words[0]) {
			words = words[1:]
		}
		for at := len(words) - 2; at > 0; at-- {
			if slices.Contains(computing, words[at]) && !strings.HasPrefix(words[at-1], "line ") && !given(words[at]) {
				words = slices.Delete(words, at, at+1)
			}
		}
		line = strings.Join(words, ": ")
		lines[i] = role + line
	}
	return strings.Join(lines, "\n")
}
