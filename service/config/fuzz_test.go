package config

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// What is read is written again as it was.
func FuzzParseKeys(f *testing.F) {
	f.Add("ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	f.Add("hpke:1:1924991999:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	f.Add("hpke:2:-1:")
	f.Fuzz(func(t *testing.T, text string) {
		if k, err := parseVerifying(text); err == nil {
			if again, err := parseVerifying(FormatVerifying(k)); err != nil || !again.Equal(k) {
				t.Errorf("%q: %v", text, err)
			}
		}
		if k, err := parseSealing(text); err == nil {
			again, err := parseSealing(FormatSealing(k))
			if err != nil || again.Suite != k.Suite || again.Expires != k.Expires || !bytes.Equal(again.Public, k.Public) {
				t.Errorf("%q: %v", text, err)
			}
		}
		if p, err := parsePopulation(text); err == nil && p == [16]byte{} {
			t.Errorf("%q is a population", text)
		}
	})
}

// No configuration makes a loader panic, and what it takes is in range.
func FuzzLoad(f *testing.F) {
	for name := range loaders {
		b, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploy", name+".yaml"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	path := filepath.Join(f.TempDir(), "c.yaml")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if c, err := Load[Shuffler](path); err == nil && c.MinReports < 2 {
			t.Errorf("n-min %d", c.MinReports)
		}
		if c, err := Load[Coordinator](path); err == nil && !(c.Budget.Epsilon > 0 && c.Budget.Delta > 0 && c.Budget.Delta < 1) {
			t.Errorf("budget %+v", c.Budget)
		}
		_, _ = Load[Aggregator](path)
		_, _ = Load[All](path)
		if c, err := Load[Client](path); err == nil {
			if p, err := c.Policy.parse(); err != nil || !(p.MaxEps > 0) {
				t.Errorf("policy %+v: %v", c.Policy, err)
			}
		}
	})
}
