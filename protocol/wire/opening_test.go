package wire

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// What cannot be a worker's tally, or a coordinator's range, is refused before anything is made of it.
func TestRefusedOpenings(t *testing.T) {
	good := Opened{Announcement: fill(4), From: 1, To: 3, Accepted: 2, OutOfRange: 1, Sum: []int64{1, 2}, Identities: [][16]byte{{1}, {2}}, Receipts: []ID{{1}, {2}, {3}}}
	for want, change := range map[string]func(*Opened){
		"chunks from 3 to 3":                   func(o *Opened) { o.From = 3 },
		"chunks from 1 to 281474976710657":     func(o *Opened) { o.To = 1<<48 + 1 },
		"first chunk = -1":                     func(o *Opened) { o.From = -1 },
		"messages = -2":                        func(o *Opened) { o.Accepted = -2 },
		"281474976710657 messages":             func(o *Opened) { o.WrongKey = 1<<48 + 1 },
		"identities that do not ascend":        func(o *Opened) { slices.Reverse(o.Identities) },
		"receipts that do not ascend":          func(o *Opened) { slices.Reverse(o.Receipts) },
		"1 identities and 3 receipts":          func(o *Opened) { o.Identities = o.Identities[:1] },
		"2 identities and 3 receipts":          func(o *Opened) { o.OutOfRange = 0 },
		"2 identities and 3 receipts of 1 mes": func(o *Opened) { o.Accepted = 1 },
	} {
		o := good
		o.Identities, o.Receipts = slices.Clone(o.Identities), slices.Clone(o.Receipts)
		change(&o)
		if _, err := Decode[Opened](Encode(o)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	// A number of values that is announced and does not follow.
	b := Encode(good)
	binary.LittleEndian.PutUint64(b[2+32+16+32+24:], 1<<40)
	if _, err := Decode[Opened](b); err == nil || !strings.Contains(err.Error(), "1099511627776 values in") {
		t.Error(err)
	}
	range_ := Opening{Announcement: fill(4), Task: []byte("task"), Size: 9, From: 5, Keys: [][]byte{{1}}, Digests: [][32]byte{{1}, {2}}}
	if range_.To() != 7 || range_.Place() == (Opened{Announcement: fill(4), From: 5, To: 7}).Place() || range_.Place() == (Opening{Announcement: fill(4), From: 5, Digests: range_.Digests[:1]}).Place() {
		t.Error("places of two ranges, or of a range and its tally, are the same")
	}
	for want, change := range map[string]func(*Opening){
		"0 chunks from 5 on":              func(o *Opening) { o.Digests = nil },
		"for 0 workers":                   func(o *Opening) { o.Keys = nil },
		"parts of 0 bytes":                func(o *Opening) { o.Size = 0 },
		"chunks from 281474976710657 on,": func(o *Opening) { o.From = 1<<48 + 1 },
	} {
		o := range_
		change(&o)
		if _, err := Decode[Opening](Encode(o)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
