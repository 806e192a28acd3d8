package endpoint

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"

	"github.com/riffle-dp/riffle/protocol/wire"
)

const withheld = "withheld"

// NewLogger returns a logger of JSON lines. It withholds everything that names a client, even
// if a caller logs it by mistake: addresses, ids of clients and reports, requests, and the
// remote ends in the texts of network errors.
func NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: scrub}))
}

// far matches the remote side in the text of a net.OpError, or of an HTTP server.
var far = regexp.MustCompile(`(->|from |dial tcp |serving )(\[[0-9a-fA-F:.%\w]+\]|[0-9]{1,3}(\.[0-9]{1,3}){3})(:[0-9]+)?`)

func scrub(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case wire.ID, *wire.Report, wire.Report, net.Addr, netip.Addr, netip.AddrPort, net.IP, *http.Request:
		a.Value = slog.StringValue(withheld)
	case error:
		a.Value = slog.StringValue(scrubText(v.Error()))
	case string:
		a.Value = slog.StringValue(scrubText(v))
	case fmt.Stringer:
		// Times and durations have kinds of their own.
		if a.Value.Kind() == slog.KindAny {
			a.Value = slog.StringValue(scrubText(v.String()))
		}
	}
	return a
}

func scrubText(s string) string { return far.ReplaceAllString(s, "${1}"+withheld) }
