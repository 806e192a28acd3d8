package endpoint

import (
	"errors"
	"net"
	"net/url"
	"regexp"
)

// port matches this machine's address and port in the text of a network error.
var port = regexp.MustCompile(`[0-9.\[\]:a-f]+:[0-9]+->`)

// digits matches rounds, places and digests in a URL.
var digits = regexp.MustCompile(`[0-9a-f]{16,}|[0-9]+`)

// Cause words an error so that the same trouble always reads the same: it leaves out URLs'
// details and changing ports.
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
