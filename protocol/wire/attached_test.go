package wire

import (
	"bytes"
	"errors"
	"testing"
)

// What is attached comes off again, and a task that attaches nothing has the contents it had.
func TestAttachmentsComeOffAgain(t *testing.T) {
	content := []byte("the mechanism's")
	for _, a := range []Attachments{{}, {Receipt: true}, {Token: true}, {Receipt: true, Token: true}} {
		v := Attached{Receipt: ID{1, 2, 15: 3}, Token: [TokenBytes]byte{4, 5, TokenBytes - 1: 6}}
		if !a.Receipt {
			v.Receipt = ID{}
		}
		if !a.Token {
			v.Token = [TokenBytes]byte{}
		}
		backing := append(bytes.Clone(content), "what follows in memory, and stays"...)
		b := a.Append(backing[:len(content)], v)
		if want := a.Size(int64(len(content))); int64(len(b)) != want {
			t.Errorf("%+v: %d bytes, want %d", a, len(b), want)
		}
		if !bytes.HasSuffix(backing, []byte("what follows in memory, and stays")) {
			t.Errorf("%+v: writes after the content", a)
		}
		got, with, err := a.Split(b)
		if err != nil || !bytes.Equal(got, content) || with != v {
			t.Errorf("%+v: %q, %+v, %v", a, got, with, err)
		}
		if a == (Attachments{}) && !bytes.Equal(b, content) {
			t.Errorf("nothing attached changes the content to %q", b)
		}
		if a.Size(0) != 0 {
			t.Errorf("%+v: a part that does not exist has %d bytes", a, a.Size(0))
		}
	}
	if _, _, err := (Attachments{Receipt: true}).Split(make([]byte, 15)); !errors.Is(err, ErrMalformed) {
		t.Errorf("15 bytes with a receipt of 16: %v", err)
	}
	if _, _, err := (Attachments{Receipt: true, Token: true}).Split(make([]byte, 15+TokenBytes)); !errors.Is(err, ErrMalformed) {
		t.Errorf("15 bytes with a receipt of 16, and a token: %v", err)
	}
}
