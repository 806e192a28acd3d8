// Package tokentest makes the keys of an epoch's tokens for tests. Keys are dear, so they share
// their primes: seven primes make 21 keys. Outside of tests such keys are not safe.
package tokentest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/binary"
	"math/big"
	"sync"

	"github.com/riffle-dp/riffle/protocol/token"
	"github.com/riffle-dp/riffle/protocol/wire"
)

var (
	mu     sync.Mutex
	primes []*big.Int
	keys   [][]byte // in PKCS #1
)

// Issuer is token.Generate with keys that epochs of one test binary share.
func Issuer(population, epoch wire.ID, rounds, messages int64) (*token.Issuer, error) {
	mu.Lock()
	defer mu.Unlock()
	messages = max(1, messages)
	for int64(len(keys)) < rounds*messages {
		if err := more(); err != nil {
			return nil, err
		}
	}
	b := append([]byte("riffle token keys 1\n"), population[:]...)
	b = append(b, epoch[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(messages))
	for _, der := range keys[:rounds*messages] {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(der))), der...)
	}
	return token.ParseSecret(b)
}

// more makes two primes, and a key of each with each of the others.
func more() error {
	fresh, err := rsa.GenerateKey(rand.Reader, 8*wire.TokenModulus)
	if err != nil {
		return err
	}
	one, e := big.NewInt(1), big.NewInt(int64(fresh.E))
	for _, p := range fresh.Primes {
		for _, q := range primes {
			phi := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
			key := &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: new(big.Int).Mul(p, q), E: fresh.E}, D: new(big.Int).ModInverse(e, phi), Primes: []*big.Int{p, q}}
			keys = append(keys, x509.MarshalPKCS1PrivateKey(key))
		}
		primes = append(primes, p)
	}
	return nil
}
