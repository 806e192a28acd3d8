package aggregator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// Check reads an aggregator's store, which must not be in use, and compares it with its mark,
// unless marks is nil. It calls problem for each thing that is wrong, with its key. It returns
// the number of rounds, or an error if the store cannot be listed.
func Check(ctx context.Context, s storage, marks mark.Keeper, problem func(where, format string, args ...any)) (rounds int64, err error) {
	records := map[hash]record{}
	keys, err := s.List(ctx, store.Values, recordPrefix)
	for _, key := range keys {
		e, err := s.Get(ctx, key)
		var r record
		if err == nil {
			r, err = decodeRecord(e.Value)
		}
		var announcement hash
		if err == nil {
			err = announcement.UnmarshalText([]byte(key[len(recordPrefix):]))
		}
		if err != nil {
			problem(key, "%v", err)
			continue
		}
		records[announcement] = r
		if err := checkHeld(ctx, s, announcement, r); err != nil {
			problem(key, "its held sum: %v", err)
		}
		if err := checkNoise(ctx, s, announcement, r); err != nil {
			problem(key, "its noise: %v", err)
		}
	}
	checkHistory(ctx, s, marks, records, problem)
	return int64(len(keys)), err
}

// checkNoise looks for the noise that a record names. It is never drawn again, and has a use until the
// partial sum is named.
func checkNoise(ctx context.Context, s interface {
	GetObject(ctx context.Context, name string) ([]byte, error)
}, announcement hash, r record) error {
	if r.Noise == (hash{}) || r.Partial != (hash{}) {
		return nil
	}
	b, err := s.GetObject(ctx, noiseName(announcement, r.Noise))
	if err == nil && sha256.Sum256(b) != r.Noise {
		err = errors.New("it is not what its name says")
	}
	return err
}

// checkHeld compares a held sum, if it is still there, with its name: later rounds do without one that was deleted.
func checkHeld(ctx context.Context, s interface {
	GetObject(ctx context.Context, name string) ([]byte, error)
}, announcement hash, r record) error {
	if r.Held == (hash{}) {
		return nil
	}
	b, err := s.GetObject(ctx, heldName(announcement, r.Held))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err == nil && sha256.Sum256(b) != r.Held {
		err = errors.New("it is not what its name says")
	}
	return err
}

// checkHistory compares the list of rounds with the mark and with the rounds' records.
func checkHistory(ctx context.Context, s mark.Log, marks mark.Keeper, records map[hash]record, problem func(where, format string, args ...any)) {
	list := newHistory(s, marks)
	rounds, err := list.All(ctx)
	if err != nil {
		problem("ledger", "%v", err)
		return
	}
	if err := list.Lag(); err != nil {
		problem("ledger", "%v", err)
	}
	for announcement, e := range rounds {
		if e.Row != 0 {
			if r, ok := records[e.Summed]; !ok || rowOf(r.Task, r.Round) != announcement || r.Round != e.Row {
				problem(recordPrefix+hex.EncodeToString(e.Summed[:]), "round %d of a task is summed for it, and it is none or another", e.Row)
			}
			continue
		}
		where := recordPrefix + hex.EncodeToString(announcement[:])
		if r, ok := records[announcement]; !ok {
			problem(where, "there is none, and the round is in the list of rounds")
		} else if e.Summed != (hash{}) && (r.Summed != e.Summed || r.Noise != e.Noise) {
			problem(where, "the round was summed otherwise than its record says")
		} else if e.Key != (hash{}) && hash(sha256.Sum256(r.Key)) != e.Key {
			problem(where, "the round has another key of the proofs than the list says")
		}
	}
	for announcement, r := range records {
		if r.Held != (hash{}) && rounds[rowOf(r.Task, r.Round)].Summed != announcement {
			problem(recordPrefix+hex.EncodeToString(announcement[:]), "its sum is held, and the list of rounds does not say that its round is summed for it")
		}
		if rounds[announcement].Summed == (hash{}) && (r.Noise != (hash{}) || r.Sent) && r.Partial != (hash{}) {
			problem(recordPrefix+hex.EncodeToString(announcement[:]), "the round was answered, and is not in the list of rounds as summed")
		}
	}
}
