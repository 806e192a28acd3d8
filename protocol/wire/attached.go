package wire

import (
	"fmt"
	"slices"
)

// Attachments says what each report of a task carries in every sealed part, after the
// mechanism's content. Every part has all of them, in the order of the fields.
type Attachments struct {
	Receipt bool // 16 random bytes that the client looks for in the round's list of receipts
	Token   bool // a token of the client for this round and message: see package token
}

// Attached are the attachments of one message. Those that the task does not have are empty.
type Attached struct {
	Receipt ID
	Token   [TokenBytes]byte
}

// Attachments says what the task's reports carry.
func (m Task) Attachments() Attachments {
	return Attachments{Receipt: m.Receipts, Token: m.Tokens != (Tokens{})}
}

// Size returns the size of a sealed part's content of which the mechanism's content has so many
// bytes. A part without a mechanism's content does not exist: its size is 0.
func (a Attachments) Size(content int64) int64 {
	if content == 0 {
		return 0
	}
	return content + a.bytes()
}

func (a Attachments) bytes() (n int64) {
	if a.Receipt {
		n += int64(len(ID{}))
	}
	if a.Token {
		n += TokenBytes
	}
	return n
}

// Append returns the mechanism's content followed by the attachments. It does not write into
// content's array.
func (a Attachments) Append(content []byte, v Attached) []byte {
	content = slices.Clip(content)
	if a.Receipt {
		content = append(content, v.Receipt[:]...)
	}
	if a.Token {
		content = append(content, v.Token[:]...)
	}
	return content
}

// Split is the inverse of Append. The content is not copied.
func (a Attachments) Split(b []byte) (content []byte, v Attached, err error) {
	n := int64(len(b)) - a.bytes()
	if n < 0 {
		return nil, v, fmt.Errorf("%w: %d bytes with %d of attachments", ErrMalformed, len(b), a.bytes())
	}
	content, b = b[:n:n], b[n:]
	if a.Receipt {
		b = b[copy(v.Receipt[:], b):]
	}
	if a.Token {
		copy(v.Token[:], b)
	}
	return content, v, nil
}
