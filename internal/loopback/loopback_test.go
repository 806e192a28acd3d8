package loopback

import (
	"net/http/httptest"
	"testing"
)

func TestAddress(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:1": true, "127.8.9.1:1": true, "[::1]:1": true, "localhost:1": true, "LocalHost:0": true, "[::ffff:127.0.0.1]:1": true,
		":1": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "localhost.example:1": false, "127.0.0.1.example:1": false, "localhost": false} {
		if got := Address(address); got != want {
			t.Errorf("%s: loopback is %t", address, got)
		}
	}
}

func TestHost(t *testing.T) {
	for host, want := range map[string]bool{"127.0.0.1": true, "127.0.0.1:80": true, "localhost": true, "localhost:8460": true, "[::1]": true, "[::1]:1": true,
		"": false, "evil.example": false, "evil.example:8460": false, "10.0.0.1:8460": false, "localhost.evil.example": false, "127.0.0.1.evil.example:1": false} {
		if got := Host(host); got != want {
			t.Errorf("%q: loopback is %t", host, got)
		}
	}
}

func TestForeign(t *testing.T) {
	for _, c := range []struct {
		site, mode, dest, origin string
		foreign, link            bool
	}{
		{"", "", "", "", false, false},
		{"same-origin", "cors", "empty", "", false, false},
		{"none", "navigate", "document", "", false, true},
		{"cross-site", "navigate", "document", "", true, true},
		{"cross-site", "navigate", "iframe", "", true, false},
		{"cross-site", "cors", "empty", "https://evil.example", true, false},
		{"cross-site", "no-cors", "image", "", true, false},
		{"same-site", "cors", "empty", "http://127.0.0.1:9", true, false},
		{"", "", "", "http://127.0.0.1:8080", false, false},
		{"", "", "", "https://evil.example", true, false},
		{"", "", "", "http://127.0.0.1:9", true, false},
		{"", "", "", "null", true, false},
	} {
		for _, method := range []string{"GET", "HEAD"} {
			r := httptest.NewRequest(method, "http://127.0.0.1:8080/api/events", nil)
			for name, value := range map[string]string{"Sec-Fetch-Site": c.site, "Sec-Fetch-Mode": c.mode, "Sec-Fetch-Dest": c.dest, "Origin": c.origin} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			if foreign, linked := Foreign(r, false), Foreign(r, true); foreign != c.foreign || linked != (c.foreign && !(c.link && method == "GET")) {
				t.Errorf("%s %+v: %t, %t", method, c, foreign, linked)
			}
		}
	}
}
