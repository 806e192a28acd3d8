package exchange

import "crypto/ed25519"

// AbilitiesPath is where an aggregator says what it has.
const AbilitiesPath = "/v1/abilities"

// Abilities is what an aggregator says of itself, before any round, in JSON: what sums with proofs or
// with tokens need of it.
type Abilities struct {
	// SigningKey verifies its word on which reports a round with proofs is summed over; absent: it
	// has no key, and sums nothing with proofs.
	SigningKey ed25519.PublicKey `json:"signing_key,omitempty"`
	// Mark says whether it has a mark. Without one it sums nothing with proofs.
	Mark bool `json:"mark"`
	// Registrar is the key with which tokens' keys must be signed; absent: it reads no tokens.
	Registrar ed25519.PublicKey `json:"registrar,omitempty"`
}
