package loopback

import "testing"

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
