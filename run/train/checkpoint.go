package train

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/internal/safetensors"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
)

const checkpointVersion = "riffle-checkpoint-1"

// checkpoint is the state of a run between two rounds.
type checkpoint struct {
	state    coordinator.State
	held     []toeplitz.Sum // by the aggregators of a simulation, where noise is correlated
	seconds  float64        // time spent so far, for the summary only
	reports  int64          // reports summed so far
	complete bool           // whether no round follows
}

// heldPrefix begins the name of a tensor with a round's sum without noise, which the aggregators hold where
// noise is correlated; the round's number follows.
const heldPrefix = "held."

// charge is a stretch of consecutive rounds with equal charges.
type charge struct {
	First int64    `json:"first"`
	Last  int64    `json:"last"`
	Event dp.Round `json:"event"`
	Times int64    `json:"times,omitempty"` // how often each round charges the event; 0 means once
}

func foldCharges(entries []ledger.Entry) []charge {
	var out []charge
	for _, e := range entries {
		if n := len(out); n > 0 && out[n-1].Last+1 == e.Round && out[n-1].Event == e.Event && out[n-1].Times == e.Times {
			out[n-1].Last++
			continue
		}
		out = append(out, charge{First: e.Round, Last: e.Round, Event: e.Event, Times: e.Times})
	}
	return out
}

func unfoldCharges(charges []charge) ([]ledger.Entry, error) {
	var out []ledger.Entry
	for _, c := range charges {
		if c.First < 1 || c.Last < c.First || c.Last-c.First > 1e9 {
			return nil, fmt.Errorf("charged rounds %d to %d", c.First, c.Last)
		}
		for round := c.First; round <= c.Last; round++ {
			out = append(out, ledger.Entry{Round: round, Event: c.Event, Times: c.Times})
		}
	}
	return out, nil
}

// marshal encodes the checkpoint as a safetensors file whose metadata have a digest of
// everything else in it, and one of what identifies the data.
func (c checkpoint) marshal(config Config, data []byte) ([]byte, error) {
	charges, err := json.Marshal(foldCharges(c.state.Charged))
	if err != nil {
		return nil, err
	}
	digest := config.Fields().Digest()
	f := safetensors.File{Metadata: map[string]string{
		"version":  checkpointVersion,
		"config":   hex.EncodeToString(digest[:]),
		"data":     fmt.Sprintf("%x", sha256.Sum256(data)),
		"round":    strconv.FormatInt(c.state.Round, 10),
		"steps":    strconv.FormatInt(c.state.Optimizer.Steps, 10),
		"charged":  string(charges),
		"seconds":  strconv.FormatFloat(c.seconds, 'g', -1, 64),
		"reports":  strconv.FormatInt(c.reports, 10),
		"complete": strconv.FormatBool(c.complete),
	}}
	if c.state.Opened != 0 {
		f.Metadata["opened"] = hex.EncodeToString(c.state.Batch[:])
	}
	for _, name := range slices.Sorted(maps.Keys(c.state.Optimizer.Vectors)) {
		v := c.state.Optimizer.Vectors[name]
		f.Tensors = append(f.Tensors, safetensors.New(name, []int{len(v)}, v))
	}
	weights, err := config.weightsDigest()
	if err != nil {
		return nil, err
	}
	if weights != "" {
		f.Metadata["weights"] = weights
	}
	for _, h := range c.held {
		f.Tensors = append(f.Tensors, safetensors.New(heldPrefix+strconv.FormatInt(h.Round, 10), []int{len(h.Values)}, h.Values))
	}
	sum, err := contentDigest(f)
	if err != nil {
		return nil, err
	}
	f.Metadata["sha256"] = sum
	return safetensors.Marshal(f)
}

func contentDigest(f safetensors.File) (string, error) {
	raw, err := safetensors.Marshal(f)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:]), nil
}

func saveCheckpoint(path string, c checkpoint, config Config, data []byte) error {
	raw, err := c.marshal(config, data)
	if err != nil {
		return err
	}
	return durable.WriteFile(path, raw)
}

// loadCheckpoint reads a checkpoint of this configuration and these data. If there is no file the
// run starts; an incomplete or damaged file is refused.
func loadCheckpoint(path string, config Config, data []byte) (c checkpoint, found bool, err error) {
	raw, err := durable.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return checkpoint{}, false, nil
	}
	if err != nil {
		return checkpoint{}, false, inputError("checkpoint: %v", err)
	}
	c, err = unmarshalCheckpoint(raw, config, data)
	if err != nil {
		return checkpoint{}, false, inputError("checkpoint %s: %v", path, err)
	}
	return c, true, nil
}

func unmarshalCheckpoint(raw []byte, config Config, data []byte) (c checkpoint, err error) {
	f, err := safetensors.Unmarshal(raw)
	if err != nil {
		return c, fmt.Errorf("corrupt: %v", err)
	}
	if v := f.Metadata["version"]; v != checkpointVersion {
		return c, fmt.Errorf("version %q, want %q", v, checkpointVersion)
	}
	want := f.Metadata["sha256"]
	delete(f.Metadata, "sha256")
	sum, err := contentDigest(f)
	if err != nil {
		return c, fmt.Errorf("corrupt: %v", err)
	}
	if sum != want {
		return c, fmt.Errorf("corrupt: its digest is %.12s…, its content's %.12s…", want, sum)
	}
	digest := config.Fields().Digest()
	if got := f.Metadata["config"]; got != hex.EncodeToString(digest[:]) {
		return c, fmt.Errorf("belongs to another configuration (%.12s…, this one is %.12x…)", got, digest)
	}
	if got, own := f.Metadata["data"], fmt.Sprintf("%x", sha256.Sum256(data)); got != own {
		return c, fmt.Errorf("is of other data: the digest of the rows, or of the model of a program, was %.12s…, here it is %.12s…", got, own)
	}
	weights, err := config.weightsDigest()
	if err != nil {
		return c, err
	}
	if got := f.Metadata["weights"]; got != weights {
		return c, fmt.Errorf("noise is correlated by other weights (%.12s…, this program's are %.12s…)", got, weights)
	}
	var charges []charge
	err = json.Unmarshal([]byte(f.Metadata["charged"]), &charges)
	if err == nil {
		c.state.Charged, err = unfoldCharges(charges)
	}
	parse := func(name string) (n int64) {
		if err == nil {
			n, err = strconv.ParseInt(f.Metadata[name], 10, 64)
		}
		return n
	}
	c.state.Round, c.state.Optimizer.Steps, c.reports = parse("round"), parse("steps"), parse("reports")
	if err == nil {
		c.seconds, err = strconv.ParseFloat(f.Metadata["seconds"], 64)
	}
	if err == nil {
		c.complete, err = strconv.ParseBool(f.Metadata["complete"])
	}
	if text, ok := f.Metadata["opened"]; ok && err == nil {
		var batch []byte
		if batch, err = hex.DecodeString(text); err == nil && len(batch) != len(c.state.Batch) {
			err = fmt.Errorf("digest of %d bytes", len(batch))
		}
		c.state.Opened = c.state.Round + 1
		copy(c.state.Batch[:], batch)
	}
	if err != nil {
		return c, fmt.Errorf("corrupt: %v", err)
	}
	c.state.Optimizer.Vectors = map[string][]float64{}
	for _, t := range f.Tensors {
		if number, ok := strings.CutPrefix(t.Name, heldPrefix); ok {
			h := toeplitz.Sum{}
			if h.Round, err = strconv.ParseInt(number, 10, 64); err == nil {
				h.Values, err = safetensors.Values[int64](t)
			}
			if err != nil {
				return c, fmt.Errorf("corrupt: %v", err)
			}
			c.held = append(c.held, h)
			continue
		}
		v, err := safetensors.Values[float64](t)
		if err != nil {
			return c, fmt.Errorf("corrupt: %v", err)
		}
		c.state.Optimizer.Vectors[t.Name] = v
	}
	return c, nil
}

// weightsDigest identifies the weights by which noise is correlated over rounds; "" if it is not. What
// rounds cost together is known only if all have the same.
func (c Config) weightsDigest() (string, error) {
	if c.Every == 0 {
		return "", nil
	}
	s, err := c.correlation()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Append(nil, s.Bits, s.Weights))
	return hex.EncodeToString(sum[:]), nil
}
