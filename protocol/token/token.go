// Package token issues and checks the tokens with which reports show that they come from
// different clients of a registrar's roster, without showing whose they are.
//
// A token is a blind RSA signature of RFC 9474, RSABSSA-SHA384-PSS-Randomized, by the registrar:
// 32 random bytes and a signature of the task's digest, the round and the message's index, under
// them. Each round and index has a key of its own. A client gets one signature under each key, so
// it has one token for each message that it may send, whoever runs the shuffler. The registrar
// signs blinded messages, which are uniformly distributed whatever the token: it cannot tell
// which client a token was issued to, even together with those who read the reports.
//
// All keys of an epoch are named by one digest in the task ([wire.Tokens]): a key for one client
// would name that client. All tokens of an epoch are asked for together, by every client that
// agrees to the task, so that asking says nothing about taking part.
//
// # Why a key for each round and index
//
// Partially blind RSA signs under one key and binds round and index as public metadata. Measured
// with CIRCL 1.6.5, keys of 2048 bits, on one of two virtual cores, quiet (the metadata's exponent has
// 1,022 bits, the fixed one 17):
//
//	                     a key each   one key, metadata
//	making a key         79 ms        70 s (two safe primes)
//	blinding a message   80 µs        1.5 ms
//	signing              2.8 ms       5.4 ms
//	unblinding           42 µs        1.7 ms
//	verifying            29 µs        1.6 ms
//
// 60,000 clients and 300 rounds, which may be announced 610 times: 48 s of keys and 28 h of
// signing against 70 s and 55 h; a round's tokens are verified in 1.7 s against 99 s. A demo of
// 20 clients and 20 rounds (50 keys): 4 s of keys and 3 s of signing against 70 s and 5 s. Keys
// for each round and index are cheaper in all of these, and RFC 9474 is a standard, which the
// partially blind scheme is not. The price is a list of 256 bytes a key, 156 kB for 300 rounds,
// which every client fetches once.
//
// BUG(riffle): CIRCL signs with math/big, without the primes and not in constant time. Each
// operation is blinded with fresh randomness, so its time shows nothing about the message.
package token

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha3"
	"crypto/sha512"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"

	"github.com/cloudflare/circl/blindsign/blindrsa"

	"github.com/riffle-dp/riffle/protocol/wire"
)

const (
	variant    = blindrsa.SHA384PSSRandomized
	nonceBytes = 32 // that RFC 9474's Prepare puts before the message
	exponent   = 65537
	bits       = 8 * wire.TokenModulus
)

// Keys verifies the tokens of a task. It does not change; safe for concurrent use.
type Keys struct {
	epoch    wire.TokenKeys
	messages int64
	public   []rsa.PublicKey
}

// NewKeys checks an epoch's keys; the caller has checked their signature.
func NewKeys(m wire.TokenKeys) (*Keys, error) {
	k := &Keys{epoch: m, messages: max(1, m.Messages), public: make([]rsa.PublicKey, len(m.Moduli))}
	seen := map[[wire.TokenModulus]byte]bool{}
	for i := range m.Moduli {
		n := new(big.Int).SetBytes(m.Moduli[i][:])
		if n.BitLen() != bits || n.Bit(0) == 0 || seen[m.Moduli[i]] {
			return nil, fmt.Errorf("token: key %d is not an RSA key of %d bits, or is there twice", i, bits)
		}
		seen[m.Moduli[i]] = true
		k.public[i] = rsa.PublicKey{N: n, E: exponent}
	}
	return k, nil
}

// ForTask returns the keys if they are those of the task: their digest, and one for each message
// of each round that may be announced.
func ForTask(m wire.TokenKeys, task wire.Task) (*Keys, error) {
	switch {
	case wire.Digest(m) != task.Tokens.Keys || m.Epoch != task.Tokens.Epoch:
		return nil, errors.New("token: the keys are not those that the task names")
	case m.Population != task.Population:
		return nil, errors.New("token: the keys are of another population")
	case max(1, m.Messages) != task.PerClient() || m.Rounds() < task.LastRound():
		return nil, fmt.Errorf("token: keys for %d rounds of %d messages, the task has up to %d of %d", m.Rounds(), m.Messages, task.LastRound(), task.PerClient())
	}
	return NewKeys(m)
}

// Epoch returns the keys' message.
func (k *Keys) Epoch() wire.TokenKeys { return k.epoch }

// Place returns the number of a round's and a message's key; ok is false if there is none.
// Rounds count from 1, messages from 0.
func (k *Keys) Place(round, index int64) (place int, ok bool) {
	if round < 1 || index < 0 || index >= k.messages || round > int64(len(k.public))/k.messages {
		return 0, false
	}
	return int((round-1)*k.messages + index), true
}

// message is what a token signs: the task and what it may be used for.
func message(task [32]byte, place int) []byte {
	return binary.BigEndian.AppendUint64(append([]byte("riffle/1 token\x00"), task[:]...), uint64(place))
}

// Verify says whether a token is one of the task for the round and message.
func (k *Keys) Verify(task [32]byte, round, index int64, token *[wire.TokenBytes]byte) bool {
	place, ok := k.Place(round, index)
	if !ok {
		return false
	}
	digest := sha512.Sum384(append(token[:nonceBytes:nonceBytes], message(task, place)...))
	return rsa.VerifyPSS(&k.public[place], crypto.SHA384, digest[:], token[nonceBytes:], &rsa.PSSOptions{SaltLength: crypto.SHA384.Size()}) == nil
}

// nonce is the random bytes of a token. Two tokens with equal nonces are the same grant.
type nonce = [nonceBytes]byte

func nonceOf(token *[wire.TokenBytes]byte) nonce { return nonce(token[:nonceBytes]) }

// Round takes the tokens of one round of a task, each once.
type Round struct {
	keys  *Keys
	task  [32]byte
	round int64
	taken []map[nonce]struct{} // by message
}

// Round returns a round of which no token was taken.
func (k *Keys) Round(task [32]byte, round int64) *Round {
	r := &Round{k, task, round, make([]map[nonce]struct{}, k.messages)}
	for i := range r.taken {
		r.taken[i] = map[nonce]struct{}{}
	}
	return r
}

// Valid says whether a token is one of the round for the message. It takes nothing, and is safe
// for concurrent use.
func (r *Round) Valid(index int64, token *[wire.TokenBytes]byte) bool {
	return r.keys.Verify(r.task, r.round, index, token)
}

// Take says whether a valid token is the first of its grant, and takes it. One goroutine at a
// time may call it, in the batch's order, so that whoever opens the batch takes the same ones.
func (r *Round) Take(index int64, token *[wire.TokenBytes]byte) bool {
	n := nonceOf(token)
	if _, again := r.taken[index][n]; again {
		return false
	}
	r.taken[index][n] = struct{}{}
	return true
}

// Fewest returns how many tokens were taken for the message with the fewest.
func (r *Round) Fewest() int64 {
	fewest := len(r.taken[0])
	for _, t := range r.taken {
		fewest = min(fewest, len(t))
	}
	return int64(fewest)
}

// pendingTokens is a client's tokens of an epoch, before and while they are signed. All of it follows
// from a secret seed, so a client that keeps the seed asks for the same signatures again.
type pendingTokens struct {
	keys *Keys
	task [32]byte
	seed [32]byte
}

// NewPending returns the tokens of a task that follow from a seed of random bytes.
func NewPending(k *Keys, task [32]byte, seed [32]byte) *pendingTokens {
	return &pendingTokens{k, task, seed}
}

func (p *pendingTokens) blind(place int) (nonce, blinded []byte, c blindrsa.Client, s blindrsa.State, err error) {
	random := sha3.NewSHAKE256()
	random.Write([]byte("riffle/1 token seed\x00"))
	random.Write(p.seed[:])
	random.Write(p.task[:])
	random.Write(binary.BigEndian.AppendUint64(nil, uint64(place)))
	if c, err = blindrsa.NewClient(variant, &p.keys.public[place]); err != nil {
		return nil, nil, c, s, err
	}
	prepared, err := c.Prepare(random, message(p.task, place))
	if err != nil {
		return nil, nil, c, s, err
	}
	blinded, s, err = c.Blind(random, prepared)
	return prepared[:nonceBytes], blinded, c, s, err
}

// Request returns the request for the tokens from place first on, at most wire.MaxGrant, and the
// blinded messages that follow it.
func (p *pendingTokens) Request(client wire.ID, first int) (wire.TokenRequest, []byte, error) {
	count := min(len(p.keys.public)-first, wire.MaxGrant)
	if first < 0 || count < 1 {
		return wire.TokenRequest{}, nil, fmt.Errorf("token: no tokens from %d on", first)
	}
	var body []byte
	for place := first; place < first+count; place++ {
		_, blinded, _, _, err := p.blind(place)
		if err != nil {
			return wire.TokenRequest{}, nil, fmt.Errorf("token: %w", err)
		}
		body = append(body, blinded...)
	}
	e := p.keys.epoch
	return wire.TokenRequest{Population: e.Population, Client: client, Epoch: e.Epoch, First: int64(first), Count: int64(count), Blinded: sha256.Sum256(body)}, body, nil
}

// Finish appends to tokens those that the registrar's answer to Request makes. It refuses an
// answer of which one signature is wrong.
func (p *pendingTokens) Finish(tokens []byte, first int, answer []byte) ([]byte, error) {
	count := len(answer) / wire.TokenModulus
	if first < 0 || len(answer)%wire.TokenModulus != 0 || count != min(len(p.keys.public)-first, wire.MaxGrant) {
		return nil, fmt.Errorf("token: an answer of %d bytes to a request from %d", len(answer), first)
	}
	for i := range count {
		token, err := p.FinishOne(first+i, answer[i*wire.TokenModulus:(i+1)*wire.TokenModulus])
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, token...)
	}
	return tokens, nil
}

// FinishOne is Finish for the token at a place and its blind signature.
func (p *pendingTokens) FinishOne(place int, signed []byte) ([]byte, error) {
	nonce, _, c, s, err := p.blind(place)
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	signature, err := c.Finalize(s, signed)
	if err != nil {
		return nil, fmt.Errorf("token: signature %d of the registrar does not fit", place)
	}
	return append(nonce, signature...), nil
}
