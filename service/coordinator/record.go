package coordinator

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/document"
)

// recordFormat is the version of the stored records; others are refused.
const recordFormat = 1

type hash = document.Hash

// States of a task.
const (
	Running = "running"
	Done    = "done"    // all rounds have ended
	Stopped = "stopped" // by the operator
	Refused = "refused" // the ledger takes no further round
	// Paused is a running task that waits for its operator.
	Paused = "paused"
	// Removed is a task that was never charged and was deleted. It is not shown; its
	// record keeps other coordinators on the store from beginning it again.
	Removed = "removed"
	// Unusable is never stored: this coordinator cannot run the task, and does not lead it.
	Unusable = "unusable"
)

// taskRecord is the value of the key task.<task>; the signed task is an object beside it.
type taskRecord struct {
	Format int    `json:"format"`
	State  string `json:"state"`
	Why    string `json:"why,omitempty"`
}

// end is how a task ended.
type end struct {
	State string
	Why   string
}

// cloned returns a copy of c whose maps are not nil.
func cloned(c wire.Counts) wire.Counts {
	c.Rejected = maps.Clone(c.Rejected)
	if c.Rejected == nil {
		c.Rejected = map[wire.Reason]int64{}
	}
	c.FailedBy = maps.Clone(c.FailedBy)
	if c.FailedBy == nil {
		c.FailedBy = map[string]int64{}
	}
	return c
}

// record is the value of the key state.<task>: the last release, and the round that is open.
type record struct {
	Format int         `json:"format"`
	Fence  uint64      `json:"fence"` // lease number of the process that wrote last
	Round  int64       `json:"round"` // the last round that ended
	Model  hash        `json:"model"`
	Step   hash        `json:"state"` // digest of the optimiser's state
	Counts wire.Counts `json:"counts"`
	// Failed is the last charged round without a step. Barren is the number of such rounds
	// since the last step, or since the operator last resumed the task.
	Failed *failed `json:"failure,omitempty"`
	Barren int64   `json:"barren,omitempty"`
	// Voids is the number of void rounds since the last that was not, or since the operator last
	// resumed the task.
	Voids int64 `json:"voids,omitempty"`
	// Paused says why no round is announced until the operator resumes the task.
	Paused string `json:"paused,omitempty"`
	// Best is the guard's measure of the best model since the task began or was last
	// resumed; nil: not measured.
	Best   *float64 `json:"best,omitempty"`
	Roster hash     `json:"roster"` // digest of the roster in the enrolment; fixed where participation is once
	// Recent lists the digests of the kept models, the newest last.
	Recent []hash `json:"recent"`
	// Told lists the last rounds of which clients may ask, the newest last.
	Told []told `json:"told,omitempty"`
	// Held lists the rounds, in their order, of which this coordinator holds its share of the sum without noise,
	// because later releases are made of it: where noise is correlated.
	Held []heldSum `json:"held,omitempty"`
	// Untold is the digest of the round that ended last, if the shuffler may not have destroyed
	// it yet.
	Untold hash       `json:"untold"`
	Open   *openRound `json:"open,omitempty"`
}

type openRound struct {
	Announcement []byte `json:"announcement"` // signed
	Closed       []byte `json:"closed,omitempty"`
	Charged      bool   `json:"charged"`

	// Of a round with proofs, in the order in which they are stored.

	Key      []byte `json:"key,omitempty"`     // the sealed key of the proofs
	Excluded hash   `json:"excluded,omitzero"` // digest of the one set of reports that is left out
	Agreed   []byte `json:"agreed,omitempty"`  // the second aggregator's signed word on it
	Noise    hash   `json:"noise,omitzero"`    // digest of the sealed noise that is added to the own share
}

// ordered says whether each step was stored after the one before.
func (o *openRound) ordered() bool {
	switch {
	case len(o.Announcement) == 0, o.Charged && len(o.Closed) == 0, len(o.Key) > 0 && !o.Charged,
		o.Excluded != (hash{}) && len(o.Key) == 0, len(o.Agreed) > 0 && o.Excluded == (hash{}), o.Noise != (hash{}) && len(o.Agreed) == 0:
		return false
	}
	return true
}

func (r record) encode() ([]byte, error) { r.Format = recordFormat; return json.Marshal(r) }

func decodeRecord(b []byte) (record, error) {
	var r record
	if err := document.Decode(b, recordFormat, &r); err != nil {
		return r, fmt.Errorf("coordinator: state of a task: %v", err)
	}
	if r.Round < 0 || r.Barren < 0 || r.Voids < 0 || r.Open != nil && !r.Open.ordered() {
		return r, errors.New("coordinator: invalid state of a task")
	}
	last := int64(0)
	for _, h := range r.Held {
		if h.Round <= last || h.Round > r.Round {
			return r, fmt.Errorf("coordinator: state of a task: the sum of round %d is held after that of round %d, in round %d", h.Round, last, r.Round)
		}
		last = h.Round
	}
	r.Counts = cloned(r.Counts)
	return r, nil
}

func decodeTask(b []byte) (taskRecord, error) {
	var r taskRecord
	if err := document.Decode(b, recordFormat, &r); err != nil {
		return r, fmt.Errorf("coordinator: a task: %w", err)
	}
	switch r.State {
	case Running, Done, Stopped, Refused, Removed:
		return r, nil
	}
	return r, fmt.Errorf("coordinator: task in state %q", r.State)
}

// encodeModel writes a model: its parameters in order, as 4-byte floats.
func encodeModel(params []float32) []byte {
	b := make([]byte, 0, 4*len(params))
	for _, v := range params {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// decodeModel reads what encodeModel wrote.
func decodeModel(b []byte) ([]float32, error) {
	if len(b)%4 != 0 {
		return nil, fmt.Errorf("coordinator: a model of %d bytes, want 4 a parameter", len(b))
	}
	params := make([]float32, len(b)/4)
	for j := range params {
		params[j] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*j:]))
	}
	return params, nil
}

// stateHeader starts an optimiser's state.
const stateHeader = "riffle state 1\n"

// encodeState writes an optimiser's state: header, steps, number of vectors, and
// for each, by name, its name, length and values, bit by bit. Little endian.
func encodeState(s optimize.State) []byte {
	size := len(stateHeader) + 8 + 4
	for name, v := range s.Vectors {
		size += 4 + len(name) + 8 + 8*len(v)
	}
	b := append(make([]byte, 0, size), stateHeader...)
	b = binary.LittleEndian.AppendUint64(b, uint64(s.Steps))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(s.Vectors)))
	for _, name := range slices.Sorted(maps.Keys(s.Vectors)) {
		v := s.Vectors[name]
		b = binary.LittleEndian.AppendUint32(b, uint32(len(name)))
		b = append(b, name...)
		b = binary.LittleEndian.AppendUint64(b, uint64(len(v)))
		for _, x := range v {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
	}
	return b
}

var errState = errors.New("coordinator: no state of an optimiser")

func decodeState(b []byte) (s optimize.State, err error) {
	take := func(n uint64) []byte {
		if err != nil || uint64(len(b)) < n {
			err = errState
			return make([]byte, min(n, 8))
		}
		out := b[:n]
		b = b[n:]
		return out
	}
	if string(take(uint64(len(stateHeader)))) != stateHeader {
		return optimize.State{}, errState
	}
	s.Steps = int64(binary.LittleEndian.Uint64(take(8)))
	s.Vectors = map[string][]float64{}
	last := ""
	for i := range binary.LittleEndian.Uint32(take(4)) {
		name := string(take(uint64(binary.LittleEndian.Uint32(take(4)))))
		n := binary.LittleEndian.Uint64(take(8))
		if err != nil || n > uint64(len(b))/8 || i > 0 && name <= last {
			return optimize.State{}, errState
		}
		v := make([]float64, n)
		for j := range v {
			v[j] = math.Float64frombits(binary.LittleEndian.Uint64(take(8)))
			if math.IsNaN(v[j]) || math.IsInf(v[j], 0) {
				return optimize.State{}, errState
			}
		}
		s.Vectors[name], last = v, name
	}
	if err != nil || len(b) != 0 || s.Steps < 0 {
		return optimize.State{}, errState
	}
	return s, nil
}

// These name a task's objects. Two tasks with the same model store it twice, so that each can
// delete what it no longer needs.
func taskName(task [32]byte) string          { return fmt.Sprintf("task/%x", task) }
func modelName(task [32]byte, d hash) string { return fmt.Sprintf("model/%x/%x", task, d[:]) }
func stateName(task [32]byte, d hash) string { return fmt.Sprintf("state/%x/%x", task, d[:]) }

// digestOf returns the digest that names an object.
func digestOf(b []byte) hash { return sha256.Sum256(b) }

func encodeTask(t taskRecord) []byte {
	b, err := json.Marshal(t)
	if err != nil {
		panic(err) // a task's fields can all be written
	}
	return b
}
