package endpoint

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func FuzzParsePin(f *testing.F) {
	f.Add(Pin{1}.String())
	f.Add("sha256:")
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ParsePin(text); err == nil {
			if again, err := ParsePin(p.String()); err != nil || again != p {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

// Whatever a server answers, a failure is a refusal with a known reason.
func FuzzCheck(f *testing.F) {
	f.Add(403, "application/json", `{"reason":"not-enrolled","detail":"x"}`)
	f.Add(502, "text/html", "<html>")
	f.Fuzz(func(t *testing.T, code int, kind, body string) {
		err := check(&http.Response{StatusCode: code, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body))})
		if code/100 == 2 {
			if err != nil {
				t.Errorf("%d is refused: %v", code, err)
			}
			return
		}
		if r, ok := err.(*Refusal); !ok || !known[r.Reason] || r.Code != code {
			t.Errorf("%d %q is %v", code, body, err)
		}
	})
}
