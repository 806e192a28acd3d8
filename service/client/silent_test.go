package client

import (
	"net/http"
	"testing"
	"time"
)

// A client asks with pings whether a silent connection still carries anything. Without them a
// connection that a firewall has forgotten holds up all requests for minutes.
func TestSilentConnectionsArePinged(t *testing.T) {
	tr, err := newTransport(JoinConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*http.Client{tr.(hypertext).known, tr.(hypertext).others} {
		h := c.Transport.(*http.Transport).HTTP2
		if h == nil || h.SendPingTimeout <= pollTime || h.SendPingTimeout > time.Minute || h.PingTimeout <= 0 || h.PingTimeout > time.Minute {
			t.Errorf("pings: %+v", h)
		}
	}
}
