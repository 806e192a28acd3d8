package envelope

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hpke"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// Requests that a client sends through a relay are sealed to the shuffler's key as RFC 9458
// (Oblivious HTTP) says, and so are the answers. Its labels differ from those of reports, so one
// key serves both.

const (
	obliviousRequest  = "message/bhttp request"
	obliviousResponse = "message/bhttp response"

	// obliviousHeader is the size of a sealed request's header: key id, then the numbers of KEM,
	// KDF and AEAD.
	obliviousHeader = 1 + 2 + 2 + 2
	// obliviousSecret is the size of the exported secret, and of the nonce before an answer: that
	// of AES-128's key.
	obliviousSecret = 16
)

// obliviousNames returns a key's header.
func obliviousNames(key wire.Key) ([]byte, error) {
	k, err := kem(key.Suite)
	if err != nil {
		return nil, err
	}
	b := []byte{key.ID()[0]}
	for _, n := range []uint16{k.ID(), hpke.HKDFSHA256().ID(), hpke.AES128GCM().ID()} {
		b = binary.BigEndian.AppendUint16(b, n)
	}
	return b, nil
}

func obliviousInfo(header []byte) []byte {
	return append(append([]byte(obliviousRequest), 0), header...)
}

// SealRequest seals a request to a key. open opens the answer to it.
func SealRequest(key wire.Key, request []byte) (sealed []byte, open func(answer []byte) ([]byte, error), err error) {
	header, err := obliviousNames(key)
	if err != nil {
		return nil, nil, err
	}
	k, err := kem(key.Suite)
	if err != nil {
		return nil, nil, err
	}
	public, err := k.NewPublicKey(key.Public)
	if err != nil {
		return nil, nil, fmt.Errorf("envelope: key %x of suite %d: %v", key.ID(), key.Suite, err)
	}
	enc, s, err := hpke.NewSender(public, hpke.HKDFSHA256(), hpke.AES128GCM(), obliviousInfo(header))
	if err != nil {
		return nil, nil, fmt.Errorf("envelope: %v", err)
	}
	content, err := s.Seal(nil, request)
	if err != nil {
		return nil, nil, fmt.Errorf("envelope: %v", err)
	}
	secret, err := s.Export(obliviousResponse, obliviousSecret)
	if err != nil {
		return nil, nil, fmt.Errorf("envelope: %v", err)
	}
	sealed = append(append(header, enc...), content...)
	return sealed, func(answer []byte) ([]byte, error) {
		if len(answer) < obliviousSecret {
			return nil, ErrOpen
		}
		aead, nonce, err := obliviousAnswer(enc, secret, answer[:obliviousSecret])
		if err != nil {
			return nil, err
		}
		out, err := aead.Open(nil, nonce, answer[obliviousSecret:], nil)
		if err != nil {
			return nil, ErrOpen
		}
		return out, nil
	}, nil
}

// obliviousAnswer derives key and nonce of an answer.
func obliviousAnswer(enc, secret, random []byte) (cipher.AEAD, []byte, error) {
	prk, err := hkdf.Extract(sha256.New, secret, append(bytes.Clone(enc), random...))
	if err != nil {
		return nil, nil, fmt.Errorf("envelope: %v", err)
	}
	key, err := hkdf.Expand(sha256.New, prk, "key", 16)
	if err != nil {
		return nil, nil, fmt.Errorf("envelope: %v", err)
	}
	nonce, err := hkdf.Expand(sha256.New, prk, "nonce", 12)
	if err != nil {
		return nil, nil, fmt.Errorf("envelope: %v", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, nil, fmt.Errorf("envelope: %v", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, nil, fmt.Errorf("envelope: %v", err)
	}
	return aead, nonce, nil
}

// OpenRequest opens what SealRequest sealed to one of the keys. seal seals the answer.
func (r *Keyring) OpenRequest(sealed []byte) (request []byte, seal func(answer []byte) ([]byte, error), err error) {
	if len(sealed) < obliviousHeader {
		return nil, nil, fmt.Errorf("%w: a request of %d bytes", wire.ErrMalformed, len(sealed))
	}
	header := sealed[:obliviousHeader]
	failed := ErrKey
	for _, public := range r.Keys {
		names, err := obliviousNames(public)
		if err != nil || !bytes.Equal(names, header) {
			continue
		}
		size, err := encSize(public.Suite)
		if err != nil {
			return nil, nil, err
		}
		if len(sealed) < obliviousHeader+size {
			return nil, nil, fmt.Errorf("%w: a request of %d bytes", wire.ErrMalformed, len(sealed))
		}
		request, seal, err := r.byID[public.ID()].openRequest(header, sealed[obliviousHeader:][:size], sealed[obliviousHeader+size:])
		if err == nil {
			return request, seal, nil
		}
		failed = ErrOpen // another key may have the same short id
	}
	return nil, nil, failed
}

func (k *PrivateKey) openRequest(header, enc, content []byte) ([]byte, func([]byte) ([]byte, error), error) {
	s, err := hpke.NewRecipient(enc, k.private, hpke.HKDFSHA256(), hpke.AES128GCM(), obliviousInfo(header))
	if err != nil {
		return nil, nil, ErrOpen
	}
	request, err := s.Open(nil, content)
	if err != nil {
		return nil, nil, ErrOpen
	}
	secret, err := s.Export(obliviousResponse, obliviousSecret)
	if err != nil {
		return nil, nil, fmt.Errorf("envelope: %v", err)
	}
	enc = bytes.Clone(enc)
	return request, func(answer []byte) ([]byte, error) {
		random := make([]byte, obliviousSecret)
		rand.Read(random) // never fails
		return sealAnswer(enc, secret, random, answer)
	}, nil
}

func sealAnswer(enc, secret, random, answer []byte) ([]byte, error) {
	if len(random) != obliviousSecret {
		return nil, errors.New("envelope: a nonce of another size")
	}
	aead, nonce, err := obliviousAnswer(enc, secret, random)
	if err != nil {
		return nil, err
	}
	return aead.Seal(random, nonce, answer, nil), nil
}
