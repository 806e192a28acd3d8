package main

import (
	"slices"
	"strings"
)

// packages are the names with which errors of the module's packages begin.
var packages = []string{"account", "aggregator", "amplify", "audit", "batch", "certificate", "client", "config", "coordinator", "dashboard", "dataset",
	"document", "dp", "durable", "endpoint", "envelope", "experiment", "feature", "figures", "gdp", "kernel", "ledger", "mechanism", "mnist", "model",
	"monotone", "operate", "optimize", "picture", "plan", "pld", "prio3", "randomizer", "rdp", "report", "rng", "safetensors", "sample",
	"schedule", "shuffler", "simulate", "solve", "store", "tail", "train", "vecsum", "wire"}

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
		for {
			word, rest, ok := strings.Cut(line, ": ")
			if !ok || !slices.Contains(packages, word) || slices.ContainsFunc(args, func(a string) bool {
				_, value, given := strings.Cut(a, "=")
				return a == word || given && value == word
			}) {
				break
			}
			line = rest
		}
		lines[i] = role + line
	}
	return strings.Join(lines, "\n")
}
