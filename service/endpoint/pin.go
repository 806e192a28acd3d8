package endpoint

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"time"
)

// Pin is the SHA-256 of a certificate's SubjectPublicKeyInfo. It names a key, whoever signed
// its certificate.
type Pin [sha256.Size]byte

const pinPrefix = "sha256:"

// String returns "sha256:" and the pin in base64.
func (p Pin) String() string { return pinPrefix + base64.StdEncoding.EncodeToString(p[:]) }

// ParsePin is the inverse of String.
func ParsePin(text string) (p Pin, err error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), pinPrefix)
	b, err := base64.StdEncoding.DecodeString(rest)
	if !ok || err != nil || len(b) != len(p) {
		return Pin{}, fmt.Errorf("endpoint: %q is not a pin: want %q and 32 bytes in base64", text, pinPrefix)
	}
	copy(p[:], b)
	return p, nil
}

// pinOf returns a certificate's pin.
func pinOf(c *x509.Certificate) Pin { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// ErrNotPinned is wrapped if a peer shows a key that is not pinned.
var ErrNotPinned = errors.New("endpoint: the peer's key is not pinned")

// verifyPins accepts a connection to any of the pinned keys. It ignores names and dates of
// the certificate: the parties agreed on the key, and give it up by removing its pin from the
// configuration.
func verifyPins(pins []Pin) func(tls.ConnectionState) error {
	pins = slices.Clone(pins)
	return func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return errors.New("endpoint: the peer has no certificate")
		}
		if !slices.Contains(pins, pinOf(s.PeerCertificates[0])) {
			return fmt.Errorf("%w: it has %s", ErrNotPinned, pinOf(s.PeerCertificates[0]))
		}
		return nil
	}
}

// GenerateCertificate makes a key (ECDSA, P-256) and a certificate that it signs
// itself, both in PEM. Hosts are names or addresses.
func GenerateCertificate(hosts []string, from, to time.Time) (cert, key []byte, pin Pin, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, Pin{}, fmt.Errorf("endpoint: %v", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, Pin{}, fmt.Errorf("endpoint: %v", err)
	}
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "riffle"}, NotBefore: from, NotAfter: to,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, private.Public(), private)
	if err != nil {
		return nil, nil, Pin{}, fmt.Errorf("endpoint: %v", err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, Pin{}, fmt.Errorf("endpoint: %v", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, Pin{}, fmt.Errorf("endpoint: %v", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), pinOf(parsed), nil
}
