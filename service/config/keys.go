package config

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// Names of the files that Generate makes.
const (
	SigningFile     = "signing.key"     // Ed25519, PKCS #8 in PEM
	signingPublic   = "signing.pub"     // see FormatVerifying
	sealingFile     = "sealing-"        // followed by the key's id
	CertificateFile = "tls.crt"         // X.509 in PEM
	CertificateKey  = "tls.key"         // PKCS #8 in PEM
	PinFile         = "tls.pin"         // see endpoint.Pin
	CredentialsFile = "credentials.key" // clients' private keys, one a line
	RosterFile      = "roster.txt"      // clients' public keys, one a line
)

// WriteNew makes a file that does not exist yet: keys are never overwritten.
func WriteNew(path string, data []byte, mode os.FileMode) error {
	err := durable.Create(path, data, mode)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("config: %s is there already, and keys are never overwritten: %w", path, os.ErrExist)
	}
	if err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return nil
}

// absent returns an error if any of the files exists. It is called before the first file is
// made.
func absent(dir string, names ...string) error {
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("config: %s is there already, and keys are never overwritten: %w", filepath.Join(dir, name), os.ErrExist)
		}
	}
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return nil
}

// GenerateSigning makes an Ed25519 key and its public half in dir.
func GenerateSigning(dir string) (ed25519.PublicKey, error) {
	if err := absent(dir, SigningFile, signingPublic); err != nil {
		return nil, err
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("config: %v", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("config: %v", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := WriteNew(filepath.Join(dir, SigningFile), text, 0o600); err != nil {
		return nil, err
	}
	return public, WriteNew(filepath.Join(dir, signingPublic), []byte(FormatVerifying(public)+"\n"), 0o644)
}

// GenerateSealing makes an HPKE key and its public half. The file is named by the key's id,
// so that a new key lies beside those in use.
func GenerateSealing(dir string, suite wire.Suite, expires time.Time) (key wire.Key, file string, err error) {
	k, err := envelope.GenerateKey(suite, expires)
	if err != nil {
		return wire.Key{}, "", err
	}
	text, err := k.MarshalText()
	if err != nil {
		return wire.Key{}, "", err
	}
	id := k.Public.ID()
	file = sealingFile + hex.EncodeToString(id[:])
	if err := absent(dir, file+".key", file+".pub"); err != nil {
		return wire.Key{}, "", err
	}
	if err := WriteNew(filepath.Join(dir, file+".key"), text, 0o600); err != nil {
		return wire.Key{}, "", err
	}
	return k.Public, file + ".key", WriteNew(filepath.Join(dir, file+".pub"), []byte(FormatSealing(k.Public)+"\n"), 0o644)
}

// GenerateTLS makes a self-signed certificate, its key, and its pin.
func GenerateTLS(dir string, hosts []string, from, to time.Time) (endpoint.Pin, error) {
	if err := absent(dir, CertificateFile, CertificateKey, PinFile); err != nil {
		return endpoint.Pin{}, err
	}
	cert, key, pin, err := endpoint.GenerateCertificate(hosts, from, to)
	if err != nil {
		return endpoint.Pin{}, err
	}
	if err := WriteNew(filepath.Join(dir, CertificateKey), key, 0o600); err != nil {
		return endpoint.Pin{}, err
	}
	if err := WriteNew(filepath.Join(dir, CertificateFile), cert, 0o644); err != nil {
		return endpoint.Pin{}, err
	}
	return pin, WriteNew(filepath.Join(dir, PinFile), []byte(pin.String()+"\n"), 0o644)
}

// GenerateCredentials makes n clients' credentials, one a line in one file, and their lines
// of the roster in another.
func GenerateCredentials(dir string, n int) ([]ed25519.PublicKey, error) {
	if n < 1 {
		return nil, fmt.Errorf("config: %d credentials", n)
	}
	if err := absent(dir, CredentialsFile, RosterFile); err != nil {
		return nil, err
	}
	var secret, roster bytes.Buffer
	keys := make([]ed25519.PublicKey, n)
	for i := range keys {
		c, err := client.NewCredential()
		if err != nil {
			return nil, err
		}
		keys[i] = c.Public()
		secret.Write(c.Secret())
		roster.Write(client.MarshalPublic(keys[i]))
	}
	if err := WriteNew(filepath.Join(dir, CredentialsFile), secret.Bytes(), 0o600); err != nil {
		return nil, err
	}
	return keys, WriteNew(filepath.Join(dir, RosterFile), roster.Bytes(), 0o644)
}

// verifyingPrefix starts the text of a public signing key.
const verifyingPrefix = "ed25519:"

// FormatVerifying writes a public signing key as "ed25519:" and base64.
func FormatVerifying(k ed25519.PublicKey) string {
	return verifyingPrefix + base64.StdEncoding.EncodeToString(k)
}

// parseVerifying is the inverse of FormatVerifying.
func parseVerifying(text string) (ed25519.PublicKey, error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), verifyingPrefix)
	b, err := base64.StdEncoding.DecodeString(rest)
	if !ok || err != nil || len(b) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("config: %q is not a public signing key: want %q and 32 bytes in base64", text, verifyingPrefix)
	}
	return ed25519.PublicKey(b), nil
}

// sealingPrefix starts the text of a public sealing key.
const sealingPrefix = "hpke:"

// FormatSealing writes a public sealing key as "hpke:", suite, expiry and base64.
func FormatSealing(k wire.Key) string {
	return fmt.Sprintf("%s%d:%d:%s", sealingPrefix, k.Suite, k.Expires, base64.StdEncoding.EncodeToString(k.Public))
}

// parseSealing is the inverse of FormatSealing.
func parseSealing(text string) (wire.Key, error) {
	bad := func() (wire.Key, error) {
		return wire.Key{}, fmt.Errorf("config: %q is not a public sealing key: want %sSUITE:EXPIRY:BASE64", text, sealingPrefix)
	}
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), sealingPrefix)
	f := strings.Split(rest, ":")
	if !ok || len(f) != 3 {
		return bad()
	}
	suite, err1 := strconv.ParseUint(f[0], 10, 8)
	expires, err2 := strconv.ParseInt(f[1], 10, 64)
	public, err3 := base64.StdEncoding.DecodeString(f[2])
	k := wire.Key{Suite: wire.Suite(suite), Public: public, Expires: expires}
	if err1 != nil || err2 != nil || err3 != nil {
		return bad()
	}
	if _, err := envelope.PartSize(k.Suite, 0); err != nil {
		return bad()
	}
	return k, nil
}

// ParseSuite reads the name of a suite.
func ParseSuite(name string) (wire.Suite, error) {
	switch name {
	case "x25519":
		return wire.X25519, nil
	case "mlkem768x25519":
		return wire.X25519MLKEM768, nil
	}
	return 0, fmt.Errorf("config: suite %q must be x25519 or mlkem768x25519", name)
}

// readSecret reads a private key from a file that only its owner can read.
func readSecret(path string) ([]byte, error) {
	if err := endpoint.CheckSecret(path); err != nil {
		return nil, err
	}
	b, err := durable.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	return b, nil
}

// lines calls f with each line that is not empty and does not begin with #.
func lines(path string, from io.Reader, f func(line string) error) error {
	in, n := bufio.NewScanner(from), 0
	for in.Scan() {
		n++
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if err := f(line); err != nil {
			return fmt.Errorf("%s: line %d: %w", path, n, err)
		}
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("%s: line %d: %w", path, n+1, err)
	}
	return nil
}

// LoadCredentials reads clients' credentials, a line each. Errors show nothing
// of them.
func LoadCredentials(path string) ([]*client.Credential, error) {
	b, err := readSecret(path)
	if err != nil {
		return nil, err
	}
	var all []*client.Credential
	seen := map[wire.ID]bool{}
	err = lines(path, bytes.NewReader(b), func(line string) error {
		c, err := client.ParseCredential([]byte(line))
		if err != nil {
			return err
		}
		id := wire.ClientID(c.Public())
		if seen[id] {
			return errors.New("config: the credential is listed twice")
		}
		seen[id], all = true, append(all, c)
		return nil
	})
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("config: %s holds no credential", path)
	}
	return all, err
}

// LoadSigning reads an Ed25519 private key. Errors show nothing of it.
func LoadSigning(path string) (ed25519.PrivateKey, error) {
	b, err := readSecret(path)
	if err != nil {
		return nil, err
	}
	block, rest := pem.Decode(b)
	if block == nil || block.Type != "PRIVATE KEY" || len(bytes.TrimSpace(rest)) != 0 {
		return nil, fmt.Errorf("config: %s is not one private key in PEM", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return nil, fmt.Errorf("config: %s is not an Ed25519 private key in PKCS #8", path)
	}
	return key, nil
}

// LoadKeyring reads sealing keys: the one to announce and older ones.
func LoadKeyring(paths []string) (*envelope.Keyring, error) {
	var keys []*envelope.PrivateKey
	for _, p := range paths {
		b, err := readSecret(p)
		if err != nil {
			return nil, err
		}
		k, err := envelope.ParseKey(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		keys = append(keys, k)
	}
	return envelope.NewKeyring(keys...)
}

// LoadRoster reads clients' public keys, a line each, and returns them one after the other, 32 bytes
// each. Of millions of clients it holds little else.
func LoadRoster(path string) ([]byte, error) {
	f, err := durable.Open(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	var keys []byte
	if info, err := f.Stat(); err == nil {
		line := int64(len(client.MarshalPublic(make([]byte, ed25519.PublicKeySize))))
		keys = make([]byte, 0, min(info.Size(), 1<<30)/line*ed25519.PublicKeySize) // grows if lines are other ones
	}
	err = lines(path, f, func(line string) error {
		k, err := client.ParsePublic([]byte(line))
		keys = append(keys, k...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("config: %s enrols nobody", path)
	}
	if k := twice(keys); k != nil {
		return nil, fmt.Errorf("%s: a client is listed twice: %s", path, bytes.TrimSpace(client.MarshalPublic(k)))
	}
	return keys, nil
}

// twice returns a key that a list has twice, or nil.
func twice(keys []byte) ed25519.PublicKey {
	// Equal keys begin alike. Only those that share a beginning are compared.
	begin := make([]uint64, 0, len(keys)/ed25519.PublicKeySize)
	for k := range slices.Chunk(keys, ed25519.PublicKeySize) {
		begin = append(begin, binary.BigEndian.Uint64(k))
	}
	slices.Sort(begin)
	seen, shared := map[string]bool{}, map[uint64]bool{}
	for i := 1; i < len(begin); i++ {
		if begin[i] == begin[i-1] {
			shared[begin[i]] = true
		}
	}
	for k := range slices.Chunk(keys, ed25519.PublicKeySize) {
		if !shared[binary.BigEndian.Uint64(k)] {
			continue
		}
		if seen[string(k)] {
			return k
		}
		seen[string(k)] = true
	}
	return nil
}
