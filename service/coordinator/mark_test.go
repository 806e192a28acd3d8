package coordinator

import (
	"crypto/sha256"
	"errors"
	"math"
	"path/filepath"
	"testing"

	"github.com/riffle-dp/riffle/protocol/ledger"
)

func TestMarkFile(t *testing.T) {
	f := MarkFile(filepath.Join(t.TempDir(), "ledger.mark"))
	if _, err := f.Load(); !errors.Is(err, ledger.ErrMark) {
		t.Error("without a file:", err)
	}
	save := func(m ledger.Mark) {
		t.Helper()
		if err := f.Save(m); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Load(); err != nil || got != m {
			t.Errorf("mark %+v, want %+v (%v)", got, m, err)
		}
	}
	save(ledger.Mark{})
	var marks []ledger.Mark
	for i := range 5 {
		marks = append(marks, ledger.Mark{Entries: int64(i) + 1, Digest: sha256.Sum256([]byte{byte(i)}), Eps: float64(i) / 3})
		save(marks[i])
	}
	other := ledger.Mark{Entries: 5, Digest: marks[0].Digest}
	for _, m := range []ledger.Mark{marks[2], other} { // never lowered, never replaced by another
		if err := f.Save(m); !errors.Is(err, ledger.ErrMark) {
			t.Errorf("%+v: %v", m, err)
		}
	}
	for _, eps := range []float64{math.NaN(), -1, math.Inf(-1)} {
		if f.Save(ledger.Mark{Entries: 9, Digest: marks[0].Digest, Eps: eps}) == nil {
			t.Errorf("epsilon %v was taken", eps)
		}
	}
	save(ledger.Mark{Entries: 9, Digest: marks[0].Digest, Eps: math.Inf(1)})
}
