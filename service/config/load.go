package config

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// Load reads a configuration: a Shuffler, Coordinator, Aggregator, Registrar, Relay,
// Worker, All or Client.
// Unknown keys and keys given twice are refused. Fields without a YAML key are filled in from those
// that have one.
func Load[C any, P interface {
	*C
	defaults()
	finish(path string) error
}](path string) (c C, err error) {
	P(&c).defaults()
	if err := decode(path, &c); err != nil {
		return c, err
	}
	return c, P(&c).finish(path)
}

// decode decodes a file into v, which has the defaults.
func decode(path string, v any) error {
	b, err := durable.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return Errorf("%s: no such file", path)
	}
	if err != nil {
		return Errorf("%w", err)
	}
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	if err := d.Decode(v); err != nil && !errors.Is(err, io.EOF) {
		return Errorf("%s: %s", path, oneLine(err))
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Errorf("%s: more than one document", path)
	}
	return nil
}

// ownersAlone refuses a configuration that names a program if others may write it, where the
// system's file modes show that.
func ownersAlone(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return Errorf("%w", err)
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 && runtime.GOOS != "windows" {
		return Errorf("%s has mode %#o and names a program: only its owner may write it (chmod 644)", path, mode)
	}
	return nil
}

var notFound = regexp.MustCompile(`field (\S+) not found in type \S+`)

// oneLine puts a decoder's errors into one line and in the command line's words.
func oneLine(err error) string {
	text := err.Error()
	if all := new(yaml.TypeError); errors.As(err, &all) {
		text = strings.Join(all.Errors, "; ")
	}
	return notFound.ReplaceAllString(strings.ReplaceAll(text, "\n", " "), `unknown key "$1"`)
}

// at resolves paths relative to a configuration's directory.
func at(config string, paths ...*string) {
	dir := filepath.Dir(config)
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

func atAll(config string, paths []string) {
	for i := range paths {
		at(config, &paths[i])
	}
}

func (p *Process) defaults() {
	p.MaxConnections, p.AddressShare, p.Log = endpoint.DefaultMaxConns, endpoint.DefaultShare, "info"
}

func (p *Process) resolve(config, role, admin string) (err error) {
	p.Store.Domain = role
	if p.Operator == "" {
		p.Operator = role + ".sock"
	}
	if p.Admin == "" {
		p.Admin = admin
	}
	at(config, &p.Operator, &p.Certificate, &p.CertificateKey, &p.Store.Dir, &p.Store.Credentials, &p.Store.TLSCA,
		&p.Store.TLSCert, &p.Store.TLSKey, &p.Store.Password, &p.Store.Token)
	if p.ID, err = parsePopulation(p.Population); err != nil {
		return Errorf("%s: population: %w", config, err)
	}
	if p.Certificate == "" || p.CertificateKey == "" {
		return Errorf("%s: certificate and certificate-key are required", config)
	}
	for _, a := range []string{p.Listen, p.PeersListen, p.Admin} {
		if _, _, err := net.SplitHostPort(a); a != "" && a != NoAddress && err != nil {
			return Errorf("%s: %q is not an address: %w", config, a, err)
		}
	}
	if (p.Store.Dir == "") == (p.Store.URL == "") {
		return Errorf("%s: store needs dir or url, and not both", config)
	}
	if p.MaxConnections < 1 || !(p.Rate >= 0) {
		return Errorf("%s: max-connections must be above 0, and rate not negative", config)
	}
	if !(p.AddressShare > 0 && p.AddressShare <= 1) {
		return Errorf("%s: address-share = %v must be above 0 and at most 1", config, p.AddressShare)
	}
	if p.Level, err = parseLevel(p.Log); err != nil {
		return Errorf("%s: %w", config, err)
	}
	return nil
}

// checkOrigins returns an error unless all are origins, each once.
func checkOrigins(config string, origins []string) error {
	for i, o := range origins {
		if err := endpoint.CheckOrigin(o); err != nil {
			return Errorf("%s: origins: %w", config, err)
		}
		if slices.Contains(origins[:i], o) {
			return Errorf("%s: origins: %s is listed twice", config, o)
		}
	}
	return nil
}

// parseLevel reads the lowest level that is logged.
func parseLevel(text string) (l slog.Level, err error) {
	if err := l.UnmarshalText([]byte(text)); err != nil {
		return l, fmt.Errorf("log: %q must be debug, info, warn or error", text)
	}
	return l, nil
}

// parsePopulation reads 32 hex digits.
func parsePopulation(text string) (p wire.ID, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(p) {
		return wire.ID{}, fmt.Errorf("%q must be %d hex digits", text, 2*len(p))
	}
	copy(p[:], b)
	if p == (wire.ID{}) {
		return p, errors.New("all zeros are not a population")
	}
	return p, nil
}

// need returns an error unless the party has the given parts, and reads them.
func (p *Party) need(name string, address, pins, key bool) (err error) {
	if len(p.URLs) > 0 && p.URL != "" {
		return Errorf("%s: give url or urls, not both", name)
	}
	p.Addresses, p.Pinned = p.URLs, nil
	if len(p.URLs) == 0 {
		p.Addresses = []string{p.URL}
	}
	if address {
		for _, a := range p.Addresses {
			u, err := url.Parse(a)
			if err != nil || u.Scheme != "https" || u.Host == "" {
				return Errorf("%s: url %q must be https://HOST:PORT", name, a)
			}
		}
	} else if p.URL != "" || len(p.URLs) > 0 {
		return Errorf("%s: has no use for a url here", name)
	}
	if pins && len(p.Pins) == 0 {
		return Errorf("%s: pins are required", name)
	}
	for _, text := range p.Pins {
		pin, err := endpoint.ParsePin(text)
		if err != nil {
			return Errorf("%s: %w", name, err)
		}
		p.Pinned = append(p.Pinned, pin)
	}
	if key {
		if p.Signer, err = parseVerifying(p.Key); err != nil {
			return Errorf("%s: key: %w", name, err)
		}
	} else if p.Key != "" {
		return Errorf("%s: has no use for a key here", name)
	}
	return nil
}

// needOne is need for a peer that is called at one address.
func (p *Party) needOne(name string, key bool) error {
	if len(p.URLs) > 0 {
		return Errorf("%s: urls are for clients; give its url", name)
	}
	return p.need(name, true, true, key)
}

// needKey returns an error unless the party, a registrar, has a key and nothing else, and reads
// it. There may be none.
func (p *Party) needKey() error {
	if p == nil {
		return nil
	}
	if len(p.Pins) > 0 {
		return Errorf("registrar: has no use for pins without a url")
	}
	return p.need("registrar", false, false, true)
}
