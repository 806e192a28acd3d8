package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/safetensors"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
)

func someCheckpoint() checkpoint {
	event := func(k int64) dp.Round {
		return dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 1.1}, Trust: dp.Shuffle, Participation: dp.Sampled,
			Population: 100, Reports: k, Least: k}
	}
	c := checkpoint{seconds: 12.5, reports: 77, state: coordinator.State{
		Round: 6,
		Optimizer: optimize.State{Steps: 5, Vectors: map[string][]float64{
			"theta": {1. / 3, -2e-300}, "velocity": {0, 3}, "average": {5, 1e17},
		}},
	}}
	for i, k := range []int64{10, 10, 12, 10} {
		c.state.Charged = append(c.state.Charged, ledger.Entry{Round: int64(i + 2), Event: event(k)})
	}
	c.state.Charged[3].Times = 8
	return c
}

func TestCheckpointReadsBackExactly(t *testing.T) {
	want, config := someCheckpoint(), Default()
	path := filepath.Join(t.TempDir(), "state")
	if err := saveCheckpoint(path, want, config, nil); err != nil {
		t.Fatal(err)
	}
	got, found, err := loadCheckpoint(path, config, nil)
	if err != nil || !found {
		t.Fatal(found, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read back %+v, want %+v", got, want)
	}
	config.Workers = 9
	if _, _, err := loadCheckpoint(path, config, nil); err != nil {
		t.Errorf("another number of workers: %v", err)
	}
	config.Eps0 = 2
	if _, _, err := loadCheckpoint(path, config, nil); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "another configuration") {
		t.Errorf("another configuration: %v", err)
	}
	if _, found, err := loadCheckpoint(filepath.Join(t.TempDir(), "none"), config, nil); found || err != nil {
		t.Errorf("a missing checkpoint: %v, %v", found, err)
	}
}

// What the coordinator and the aggregators hold of earlier rounds comes back in the order of rounds. With
// other weights a run cannot go on: what all its rounds cost together would not be known.
func TestCheckpointOfCorrelatedNoise(t *testing.T) {
	config := Default()
	config.Every, config.Rounds, config.Strategy = 3, 20, toeplitz.Band
	want := someCheckpoint()
	for round := int64(8); round <= 10; round++ {
		want.state.Optimizer.Vectors[fmt.Sprintf("recovered.%d", round)] = []float64{.1, -3e9, float64(round)}
		want.held = append(want.held, toeplitz.Sum{Round: round, Values: []int64{1<<60 + round, -5}})
	}
	raw, err := want.marshal(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := unmarshalCheckpoint(raw, config, nil)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read back %+v, want %+v, %v", got, want, err)
	}
	f, err := safetensors.Unmarshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	delete(f.Metadata, "sha256")
	f.Metadata["weights"] = strings.Repeat("0", 64)
	if f.Metadata["sha256"], err = contentDigest(f); err != nil {
		t.Fatal(err)
	}
	if raw, err = safetensors.Marshal(f); err != nil {
		t.Fatal(err)
	}
	if _, err := unmarshalCheckpoint(raw, config, nil); err == nil || !strings.Contains(err.Error(), "other weights") {
		t.Errorf("other weights: %v", err)
	}
}

// Every single flipped bit and every truncation is refused.
func TestCorruptCheckpointsAreRefused(t *testing.T) {
	config := Default()
	raw, err := someCheckpoint().marshal(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		broken := append([]byte(nil), raw...)
		broken[i] ^= 1 << (i % 8)
		if _, err := unmarshalCheckpoint(broken, config, nil); err == nil {
			t.Fatalf("accepted a checkpoint with byte %d of %d changed", i, len(raw))
		}
		if _, err := unmarshalCheckpoint(raw[:i], config, nil); err == nil {
			t.Fatalf("accepted the first %d of %d bytes", i, len(raw))
		}
	}
	path := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(path, raw[:len(raw)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := loadCheckpoint(path, config, nil); !errors.Is(err, ErrInput) {
		t.Errorf("truncated: %v", err)
	}
}

func FuzzCheckpoint(f *testing.F) {
	raw, err := someCheckpoint().marshal(Default(), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := unmarshalCheckpoint(b, Default(), nil)
		if err == nil && string(b) != string(raw) {
			// A different file can only be accepted if it carries its own digest.
			if !strings.Contains(string(b), "sha256") {
				t.Error("accepted a checkpoint without a digest")
			}
		}
	})
}

func TestMetricsSurviveACutLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), MetricsFile)
	text, err := marshalMetrics([]Metrics{{Round: 2, Epsilon: 1}, {Round: 4}, {Round: 6}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(text, `{"round":8,"eps`...), 0o600); err != nil {
		t.Fatal(err)
	}
	for upTo, want := range map[int64]int{0: 0, 4: 2, 5: 2, 100: 3} {
		if got, err := readMetrics(path, upTo); err != nil || len(got) != want {
			t.Errorf("up to round %d: %d lines, want %d (%v)", upTo, len(got), want, err)
		}
	}
}
