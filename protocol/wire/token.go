package wire

// Sizes of tokens: see package token.
const (
	TokenModulus = 256               // of an RSA key of 2048 bits, and of a signature
	TokenBytes   = 32 + TokenModulus // random bytes and a signature
)

const (
	// MaxTokens is the largest number of tokens that a client gets for an epoch.
	MaxTokens = 1 << 14
	// MaxGrant is the largest number of tokens in a request.
	MaxGrant = 1 << 7
)

// Tokens names the keys under which the tokens of a task's reports are signed. The zero value
// says that reports need no tokens.
type Tokens struct {
	Epoch ID       // of the registrar; a client gets the tokens of an epoch once
	Keys  [32]byte // digest of the epoch's TokenKeys
}

// TokenKeys are the registrar's public keys of an epoch: one for each message of a client in
// each round. The registrar signs them under LabelTokenKeys.
type TokenKeys struct {
	Population ID
	Epoch      ID
	Messages   int64 // of a client in a round, at least 1
	// Moduli are the keys' moduli, big-endian: those of round 1 by message, then those of round 2,
	// and so on. The public exponent is 65537.
	Moduli [][TokenModulus]byte
}

func (*TokenKeys) kind() byte { return KindTokenKeys }

func (*TokenKeys) label() Label { return LabelTokenKeys }

func (m *TokenKeys) fields(c *codec) {
	c.fixed(m.Population[:])
	c.fixed(m.Epoch[:])
	c.count("messages", &m.Messages)
	n := c.rest("keys", len(m.Moduli), TokenModulus)
	if c.read() && (n < 1 || n > MaxTokens || m.Messages < 1 || m.Messages > MaxMessages || int64(n)%m.Messages != 0) {
		c.fail("%d keys for %d messages a round, at most %d", n, m.Messages, MaxTokens)
		return
	}
	if c.reads {
		m.Moduli = make([][TokenModulus]byte, n)
	}
	for i := range m.Moduli {
		c.fixed(m.Moduli[i][:])
	}
}

// Rounds returns the number of rounds that there are keys for.
func (m TokenKeys) Rounds() int64 { return int64(len(m.Moduli)) / max(1, m.Messages) }

// TokenRequest starts a request for tokens: blinded messages follow, one for each of Count keys
// from First on. The client signs it under LabelTokens.
type TokenRequest struct {
	Population   ID
	Client       ID
	Epoch        ID
	First, Count int64
	Blinded      [32]byte // SHA-256 of the blinded messages
}

func (*TokenRequest) kind() byte { return KindTokenRequest }

func (*TokenRequest) label() Label { return LabelTokens }

func (m *TokenRequest) fields(c *codec) {
	c.fixed(m.Population[:])
	c.fixed(m.Client[:])
	c.fixed(m.Epoch[:])
	c.count("first", &m.First)
	c.count("count", &m.Count)
	c.fixed(m.Blinded[:])
	if c.read() && (m.Count < 1 || m.Count > MaxGrant || m.First >= MaxTokens || m.First%MaxGrant != 0) {
		c.fail("a request for %d tokens from %d, at most %d at a time", m.Count, m.First, MaxGrant)
	}
}

// SignedTokenRequest is the size of a signed TokenRequest.
const SignedTokenRequest = 64 + 2 + 3*16 + 2*8 + 32
