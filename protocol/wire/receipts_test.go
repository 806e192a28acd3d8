package wire

import (
	"crypto/sha256"
	"errors"
	"testing"
)

// A list is read in pieces of any size, and refused if it is any other than the signed one.
func TestReceiptReader(t *testing.T) {
	list := append(SortReceipts([]ID{{3}, {1}, {2}, {1}}), SortReceipts([]ID{{9}, {0}})...)
	if CheckReceipts(list[:64]) != nil || CheckReceipts(list) == nil || CheckReceipts(list[:20]) == nil {
		t.Error("the order is not checked")
	}
	head := Receipts{Whole: 4, Half: 2, List: sha256.Sum256(list)}
	for piece := 16; piece <= len(list); piece += 16 {
		r := NewReceiptReader(head)
		var whole, half int
		for at := 0; at < len(list); at += piece {
			if err := r.Add(list[at:min(at+piece, len(list))], func(id ID, all bool) {
				if all {
					whole++
				} else {
					half++
				}
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil || whole != 4 || half != 2 {
			t.Errorf("pieces of %d: %d, %d, %v", piece, whole, half, err)
		}
	}
	for name, change := range map[string]func(h *Receipts, list []byte) []byte{
		"short":        func(h *Receipts, b []byte) []byte { return b[:80] },
		"long":         func(h *Receipts, b []byte) []byte { return append(b, b[80:]...) },
		"other bytes":  func(h *Receipts, b []byte) []byte { b[95]++; return b },
		"cut":          func(h *Receipts, b []byte) []byte { return b[:81] },
		"other order":  func(h *Receipts, b []byte) []byte { b[0] = 255; h.List = sha256.Sum256(b); return b },
		"other border": func(h *Receipts, b []byte) []byte { h.Whole, h.Half = 5, 1; return b },
	} {
		h, b := head, append([]byte(nil), list...)
		b = change(&h, b)
		r := NewReceiptReader(h)
		err := r.Add(b, func(ID, bool) {})
		if err == nil {
			err = r.Close()
		}
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
