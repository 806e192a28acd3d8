package wire

import (
	"crypto/rand"
	"crypto/sha256"
	"testing"
)

// BenchmarkReceipts sorts a round's 60,000 receipts, as a coordinator does, and reads the list, as a
// client does.
func BenchmarkReceipts(b *testing.B) {
	ids := make([]ID, 60_000)
	for i := range ids {
		rand.Read(ids[i][:])
	}
	var list []byte
	b.Run("sort", func(b *testing.B) {
		for b.Loop() {
			list = SortReceipts(ids)
		}
	})
	b.Run("read", func(b *testing.B) {
		head := Receipts{Whole: int64(len(ids)), List: sha256.Sum256(list)}
		b.SetBytes(int64(len(list)))
		for b.Loop() {
			r := NewReceiptReader(head)
			if err := r.Add(list, func(ID, bool) {}); err != nil || r.Close() != nil {
				b.Fatal(err)
			}
		}
	})
}
