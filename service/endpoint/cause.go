package endpoint

import (
	"errors"
	"net"
	"net/url"
	"regexp"
)

// port is one of this machine's that a connection came to have.
var port = regexp.MustCompile(`[0-9.\[\]:a-f]+:[0-9]+->`)

// digits are rounds, places and digests in an address.
var digits = regexp.MustCompile(`[0-9a-f]{16,}|[0-9]+`)

// Cause words an error so that the same trouble reads the same, whatever it was met
// at: without what an address asked for, and without ports that change.
func Cause(err error) string {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		host := u.URL
		if parsed, bad := url.Parse(u.URL); bad == nil {
			host = parsed.Host
		}
		if op := (*net.OpError)(nil); errors.As(u.Err, &op) {
			return host + ": " + op.Op + ": " + op.Err.Error()
		}
		return host + ": " + port.ReplaceAllString(u.Err.Error(), "")
	}
	return digits.ReplaceAllString(port.ReplaceAllString(err.Error(), ""), "#")
}
