package document

import (
	"strings"
	"testing"
)

type note struct {
	Format int    `json:"format"`
	Digest Hash   `json:"digest"`
	Text   string `json:"text"`
}

func TestDecode(t *testing.T) {
	h := strings.Repeat("0f", 32)
	var n note
	if err := Decode([]byte(`{"format":3,"digest":"`+h+`","text":"a"}`), 3, &n); err != nil || n.Digest[31] != 15 || n.Text != "a" {
		t.Errorf("%+v, %v", n, err)
	}
	if b, err := n.Digest.MarshalText(); err != nil || string(b) != h {
		t.Errorf("%s, %v", b, err)
	}
	for text, want := range map[string]string{
		`{"format":4,"new":1}`:       "format 4, this program knows 3",
		`{}`:                         "format 0",
		`{"format":3,"new":1}`:       "unknown field",
		`{"format":3} {"format":3}`:  "after top-level value",
		`{"format":3,"digest":"0f"}`: `digest "0f"`,
		`{"format":3,"digest":"` + h[:63] + `x` + `"}`: "digest",
		`{"format":3`: "unexpected end",
		``:            "unexpected end",
		`null`:        "format 0",
	} {
		var n note
		if err := Decode([]byte(text), 3, &n); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
