//go:build !js

// Only registrars issue tokens. Programs for browsers are smaller without this file.

package token

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/cloudflare/circl/blindsign/blindrsa"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// Issuer signs the tokens of an epoch. It does not change; safe for concurrent use. It does not
// print its keys.
type Issuer struct {
	epoch  wire.TokenKeys
	secret []*rsa.PrivateKey
}

// Format shows the epoch only.
func (i *Issuer) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "tokens of epoch %x", i.epoch.Epoch) }

// Generate makes the keys of an epoch of so many rounds and messages, workers at a time. It takes
// about 80 ms a key.
func Generate(ctx context.Context, population, epoch wire.ID, rounds, messages int64, workers int) (*Issuer, error) {
	messages = max(1, messages)
	if rounds < 1 || messages > wire.MaxMessages || rounds > wire.MaxTokens/messages {
		return nil, fmt.Errorf("token: %d rounds of %d messages need more than %d keys", rounds, messages, wire.MaxTokens)
	}
	i := &Issuer{secret: make([]*rsa.PrivateKey, rounds*messages)}
	next := make(chan int)
	errs := make(chan error, max(1, workers))
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range max(1, workers) {
		wg.Go(func() {
			for at := range next {
				key, err := rsa.GenerateKey(rand.Reader, bits)
				if err != nil {
					errs <- err
					cancel()
					return
				}
				i.secret[at] = key
			}
		})
	}
	for at := range i.secret {
		select {
		case next <- at:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	wg.Wait()
	select {
	case err := <-errs:
		return nil, fmt.Errorf("token: %w", err)
	default:
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := i.describe(population, epoch, messages); err != nil {
		return nil, err
	}
	return i, nil
}

// describe fills in the epoch's public keys.
func (i *Issuer) describe(population, epoch wire.ID, messages int64) error {
	i.epoch = wire.TokenKeys{Population: population, Epoch: epoch, Messages: messages, Moduli: make([][wire.TokenModulus]byte, len(i.secret))}
	for at, key := range i.secret {
		if key.N.BitLen() != bits || key.E != exponent {
			return fmt.Errorf("token: key %d has %d bits and the exponent %d", at, key.N.BitLen(), key.E)
		}
		key.N.FillBytes(i.epoch.Moduli[at][:])
	}
	_, err := NewKeys(i.epoch)
	return err
}

// Keys returns the epoch's public keys.
func (i *Issuer) Keys() wire.TokenKeys { return i.epoch }

// Check says whether these are blinded messages for the keys from place first on: numbers below the
// keys' moduli.
func (i *Issuer) Check(first int64, blinded []byte) error {
	count := int64(len(blinded) / wire.TokenModulus)
	if len(blinded)%wire.TokenModulus != 0 || count < 1 || first < 0 || first > int64(len(i.secret))-count {
		return fmt.Errorf("token: %d bytes to be signed from key %d on", len(blinded), first)
	}
	for at := range count {
		if bytes.Compare(blinded[at*wire.TokenModulus:(at+1)*wire.TokenModulus], i.epoch.Moduli[first+at][:]) >= 0 {
			return fmt.Errorf("token: blinded message %d is out of range", first+at)
		}
	}
	return nil
}

// Sign signs blinded messages with the keys from place first on. The same messages give the
// same answer. The caller has made sure that the client gets no other ones.
func (i *Issuer) Sign(ctx context.Context, first int64, blinded []byte) ([]byte, error) {
	if err := i.Check(first, blinded); err != nil {
		return nil, err
	}
	count := int64(len(blinded) / wire.TokenModulus)
	out := make([]byte, 0, len(blinded))
	for at := range count {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		signature, err := blindrsa.NewSigner(i.secret[first+at]).BlindSign(blinded[at*wire.TokenModulus : (at+1)*wire.TokenModulus])
		if err != nil {
			return nil, fmt.Errorf("token: blinded message %d: %w", first+at, err)
		}
		out = append(out, signature...)
	}
	return out, nil
}

// secretHeader starts an issuer's stored keys.
const secretHeader = "riffle token keys 1\n"

// Secret encodes the issuer with its private keys.
func (i *Issuer) Secret() []byte {
	b := append([]byte(secretHeader), i.epoch.Population[:]...)
	b = append(b, i.epoch.Epoch[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(i.epoch.Messages))
	for _, key := range i.secret {
		der := x509.MarshalPKCS1PrivateKey(key)
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(der))), der...)
	}
	return b
}

// ParseSecret is the inverse of Secret. Errors show nothing of the keys.
func ParseSecret(b []byte) (*Issuer, error) {
	bad := errors.New("token: the stored keys are damaged")
	rest, ok := cutPrefix(b, secretHeader)
	if !ok || len(rest) < 16+16+8 {
		return nil, bad
	}
	population, epoch := wire.ID(rest[:16]), wire.ID(rest[16:32])
	messages := binary.LittleEndian.Uint64(rest[32:])
	i := &Issuer{}
	for rest = rest[40:]; len(rest) > 0; {
		if len(rest) < 4 || uint64(binary.LittleEndian.Uint32(rest)) > uint64(len(rest)-4) {
			return nil, bad
		}
		n := int(binary.LittleEndian.Uint32(rest))
		key, err := x509.ParsePKCS1PrivateKey(rest[4 : 4+n])
		if err != nil {
			return nil, bad
		}
		i.secret = append(i.secret, key)
		rest = rest[4+n:]
	}
	if messages < 1 || messages > wire.MaxMessages || len(i.secret) == 0 || len(i.secret) > wire.MaxTokens || len(i.secret)%int(messages) != 0 {
		return nil, bad
	}
	if err := i.describe(population, epoch, int64(messages)); err != nil {
		return nil, bad
	}
	return i, nil
}

func cutPrefix(b []byte, prefix string) ([]byte, bool) {
	if len(b) < len(prefix) || string(b[:len(prefix)]) != prefix {
		return nil, false
	}
	return b[len(prefix):], true
}
