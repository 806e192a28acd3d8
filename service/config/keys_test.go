package config

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
)

func TestKeysReadBack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	public, err := GenerateSigning(dir)
	if err != nil {
		t.Fatal(err)
	}
	private, err := LoadSigning(filepath.Join(dir, SigningFile))
	if err != nil || !public.Equal(private.Public()) {
		t.Errorf("signing key: %v", err)
	}
	if k, err := parseVerifying(FormatVerifying(public)); err != nil || !k.Equal(public) {
		t.Errorf("%v %v", k, err)
	}

	var files []string
	for _, suite := range []wire.Suite{wire.X25519, wire.X25519MLKEM768} {
		key, file, err := GenerateSealing(dir, suite, time.Now().Add(time.Duration(suite)*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, filepath.Join(dir, file))
		got, err := parseSealing(FormatSealing(key))
		if err != nil || got.Suite != suite || got.Expires != key.Expires || !bytes.Equal(got.Public, key.Public) {
			t.Errorf("%v %v", got, err)
		}
		b, err := os.ReadFile(strings.TrimSuffix(filepath.Join(dir, file), ".key") + ".pub")
		if err != nil || strings.TrimSpace(string(b)) != FormatSealing(key) {
			t.Errorf("%q %v", b, err)
		}
	}
	ring, err := LoadKeyring(files)
	if err != nil || len(ring.Keys) != 2 || ring.Keys[0].Suite != wire.X25519MLKEM768 {
		t.Errorf("keyring: %v", err)
	}
	sealed, err := envelope.SealPart(ring.Keys[1], envelope.Coordinator, [32]byte{1}, []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := ring.OpenPart(envelope.Coordinator, [32]byte{1}, sealed); err != nil || string(b) != "content" {
		t.Errorf("the older key opens %q, %v", b, err)
	}

	pin, err := GenerateTLS(dir, []string{"localhost"}, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if _, got, err := endpoint.LoadCertificate(filepath.Join(dir, CertificateFile), filepath.Join(dir, CertificateKey)); err != nil || got != pin {
		t.Errorf("%v %v", got, err)
	}

	keys, err := GenerateCredentials(filepath.Join(dir, "clients"), 3)
	if err != nil || len(keys) != 3 {
		t.Fatal(err)
	}
	all, err := LoadCredentials(filepath.Join(dir, "clients", CredentialsFile))
	if err != nil || len(all) != 3 {
		t.Fatalf("%d credentials, %v", len(all), err)
	}
	roster, err := LoadRoster(filepath.Join(dir, "clients", RosterFile))
	if err != nil || len(roster) != 3*ed25519.PublicKeySize {
		t.Fatalf("%d in the roster, %v", len(roster), err)
	}
	for i := range keys {
		if !keys[i].Equal(all[i].Public()) || !bytes.Equal(keys[i], roster[32*i:32*(i+1)]) {
			t.Errorf("client %d has three keys", i)
		}
	}
	// Twice, and each file's mode.
	entries, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]string{}
	for _, e := range entries {
		b, _ := os.ReadFile(e)
		before[e] = string(b)
		info, err := os.Stat(e)
		if err != nil {
			t.Fatal(err)
		}
		if secret := strings.HasSuffix(e, ".key"); secret && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e, info.Mode())
		}
	}
	for name, again := range map[string]func() error{
		"signing": func() error { _, err := GenerateSigning(dir); return err },
		"tls":     func() error { _, err := GenerateTLS(dir, nil, time.Now(), time.Now().Add(time.Hour)); return err },
		"clients": func() error { _, err := GenerateCredentials(filepath.Join(dir, "clients"), 1); return err },
	} {
		if err := again(); !errors.Is(err, os.ErrExist) {
			t.Errorf("%s again: %v", name, err)
		}
	}
	for e, want := range before {
		if b, _ := os.ReadFile(e); string(b) != want {
			t.Errorf("%s was overwritten", e)
		}
	}
}

func TestBadKeysAreRefused(t *testing.T) {
	dir := t.TempDir()
	if _, err := GenerateCredentials(dir, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := GenerateSigning(dir); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	credentials, roster, signing := read(CredentialsFile), read(RosterFile), read(SigningFile)
	first, _, _ := strings.Cut(credentials, "\n")
	for what, err := range map[string]error{
		"a public key":           func() error { _, err := LoadCredentials(write("a.pub", credentials, 0o600)); return err }(),
		"a key for all to read":  func() error { _, err := LoadCredentials(write("a", credentials, 0o644)); return err }(),
		"a credential twice":     func() error { _, err := LoadCredentials(write("b", credentials+first+"\n", 0o600)); return err }(),
		"no credential":          func() error { _, err := LoadCredentials(write("c", "# none\n", 0o600)); return err }(),
		"a cut credential":       func() error { _, err := LoadCredentials(write("d", first[:len(first)-4], 0o600)); return err }(),
		"a client twice":         func() error { _, err := LoadRoster(write("e", roster+roster, 0o600)); return err }(),
		"a secret in the roster": func() error { _, err := LoadRoster(write("f", credentials, 0o600)); return err }(),
		"nobody":                 func() error { _, err := LoadRoster(write("g", "\n", 0o600)); return err }(),
		"two signing keys":       func() error { _, err := LoadSigning(write("h", signing+signing, 0o600)); return err }(),
		"no signing key":         func() error { _, err := LoadSigning(write("i", credentials, 0o600)); return err }(),
		"no file":                func() error { _, err := LoadSigning(filepath.Join(dir, "none")); return err }(),
		"no sealing key":         func() error { _, err := LoadKeyring([]string{write("j", first, 0o600)}); return err }(),
		"no keys at all":         func() error { _, err := LoadKeyring(nil); return err }(),
	} {
		if err == nil {
			t.Errorf("%s was taken", what)
			continue
		}
		if _, secret, _ := strings.Cut(first, " "); strings.Contains(err.Error(), secret[:20]) {
			t.Errorf("%s: the error shows the key: %v", what, err)
		}
	}
	if keys, err := LoadRoster(write("k", "# phones\n\n  "+roster, 0o600)); err != nil || len(keys) != 2*ed25519.PublicKeySize {
		t.Errorf("comments: %d, %v", len(keys), err)
	}
}
