package amplify_test

// claims are all upper bounds the package makes for a scenario.
func claims(s scenario) map[string]curve {
	return map[string]curve{"reference": refClaim(s)}
}
