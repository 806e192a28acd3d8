package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/riffle-dp/riffle/internal/durable"
)

// format is the version of the layout on disk; others are refused.
const format = 1

const (
	markerFile = "riffle-store.json"
	markerKey  = "m.marker"
)

// States of a store.
const (
	stateOpen      = "open"
	stateReceiving = "receiving" // Migrate is still filling it
	stateSealed    = "sealed"    // Migrate has moved its content elsewhere
)

// marker describes a store: its format, mode and state. It is a file of an embedded store and
// a value in a cluster.
type marker struct {
	Format  int       `json:"format"`
	ID      string    `json:"id"`
	Domain  string    `json:"domain"`
	Mode    string    `json:"mode"` // "standalone" or "cluster"
	State   string    `json:"state"`
	Created time.Time `json:"created"`
	// Base is added to the broker's sequences to give revisions, so that revisions keep
	// growing over a migration.
	Base uint64 `json:"base,omitempty"`
	// Peer is the ID of the other store of a migration, PeerPlace its directory or URL, and
	// Since the time.
	Peer      string    `json:"peer,omitempty"`
	PeerPlace string    `json:"peer_place,omitempty"`
	Since     time.Time `json:"since,omitzero"`
}

func randomID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func mode(c Config) string {
	if c.Dir != "" {
		return "standalone"
	}
	return "cluster"
}

func newMarker(c Config) marker {
	return marker{Format: format, ID: randomID(), Domain: c.Domain, Mode: mode(c), State: stateOpen, Created: time.Now().UTC()}
}

// strictJSON decodes one value. It refuses unknown fields, and anything after the value.
func strictJSON(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text after the end")
	}
	return nil
}

// checkFormat reads the version alone, because nothing else of a newer format can be relied
// on.
func checkFormat(what string, data []byte, newest int) error {
	var v struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("store: %s: %w", what, err)
	}
	if v.Format > newest {
		return fmt.Errorf("store: %s has format %d, this program reads up to %d: %w", what, v.Format, newest, ErrNewer)
	}
	if v.Format < 1 {
		return fmt.Errorf("store: %s has format %d: not one of riffle", what, v.Format)
	}
	return nil
}

func parseMarker(data []byte) (marker, error) {
	var m marker
	if err := checkFormat("the marker", data, format); err != nil {
		return marker{}, err
	}
	if err := strictJSON(data, &m); err != nil {
		return marker{}, fmt.Errorf("store: marker: %w", err)
	}
	if id, err := hex.DecodeString(m.ID); err != nil || len(id) != 16 {
		return marker{}, fmt.Errorf("store: marker: id %q", m.ID)
	}
	if m.Mode != "standalone" && m.Mode != "cluster" {
		return marker{}, fmt.Errorf("store: marker: mode %q", m.Mode)
	}
	switch m.State {
	case stateOpen:
	case stateReceiving, stateSealed:
		if m.Peer == "" {
			return marker{}, fmt.Errorf("store: marker: %s without the other store", m.State)
		}
	default:
		return marker{}, fmt.Errorf("store: marker: state %q", m.State)
	}
	if err := checkName("domain", m.Domain); err != nil {
		return marker{}, err
	}
	return m, nil
}

func (m marker) encode() ([]byte, error) {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("store: marker: %w", err)
	}
	return append(b, '\n'), nil
}

// belongs returns an error unless the marker belongs to the configured store.
func (m marker) belongs(c Config, where string) error {
	if m.Domain != c.Domain {
		return fmt.Errorf("store: %s belongs to domain %q, not to %q", where, m.Domain, c.Domain)
	}
	if m.Mode != mode(c) {
		return fmt.Errorf("store: %s has a %s marker and is opened as %s; refusing", where, m.Mode, mode(c))
	}
	return nil
}

// usable returns an error unless the store may be used.
func (m marker) usable(where string) error {
	switch m.State {
	case stateSealed:
		return fmt.Errorf("store: %s was migrated to %s on %s: %w", where, m.PeerPlace, m.Since.Format(time.RFC3339), ErrSealed)
	case stateReceiving:
		return fmt.Errorf("store: %s is being filled from %s; run the migration again: %w", where, m.PeerPlace, ErrSealed)
	}
	return nil
}

func readMarkerFile(dir string) (marker, error) {
	data, err := os.ReadFile(filepath.Join(dir, markerFile))
	if errors.Is(err, os.ErrNotExist) {
		return marker{}, fmt.Errorf("store: no store in %s: %w", dir, ErrNoStore)
	}
	if err != nil {
		return marker{}, fmt.Errorf("store: %w", err)
	}
	m, err := parseMarker(data)
	if err != nil {
		return marker{}, fmt.Errorf("%s: %w", dir, err)
	}
	return m, nil
}

func (s *Store) readMarker(ctx context.Context) (marker, error) {
	if s.config.Dir != "" {
		return readMarkerFile(s.config.Dir)
	}
	e, err := s.get(ctx, markerKey)
	if errors.Is(err, ErrNotFound) {
		return marker{}, fmt.Errorf("store: no store of domain %s at %s: %w", s.config.Domain, s.where(), ErrNoStore)
	}
	if err != nil {
		return marker{}, err
	}
	return parseMarker(e.Value)
}

// writeMarker replaces the marker. Only Init and Migrate call it.
func (s *Store) writeMarker(ctx context.Context, m marker) error {
	var revision uint64
	if s.config.Dir == "" {
		e, err := s.get(ctx, markerKey)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		revision = e.Revision
	}
	return s.putMarker(ctx, m, revision)
}

// putMarker writes the marker. In a cluster it returns ErrConflict unless the marker there has the revision,
// 0 if there is none.
func (s *Store) putMarker(ctx context.Context, m marker, revision uint64) error {
	data, err := m.encode()
	if err != nil {
		return err
	}
	if s.config.Dir != "" {
		err = durable.WriteFile(filepath.Join(s.config.Dir, markerFile), data)
	} else {
		_, err = s.put(ctx, markerKey, data, revision)
	}
	if err != nil {
		return fmt.Errorf("store: marker: %w", err)
	}
	s.state.Store(&m)
	return nil
}
