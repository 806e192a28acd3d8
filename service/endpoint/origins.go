package endpoint

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/riffle-dp/riffle/internal/loopback"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// What a browser is told that pages may send and read. It is the same for every path, so that an
// answer says nothing about what is there.
const (
	pageMethods = "GET, POST"
	pageHeaders = "Content-Type, If-None-Match, Range, Riffle-Pass"
	pageReads   = "Content-Range, ETag"
	// pageAge is how long a browser may keep that, in seconds. The origin of each request is checked
	// nevertheless.
	pageAge = "7200"
)

var hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*$`)

// CheckOrigin returns an error unless text is an origin as a browser sends it: https:// (on loopback
// also http://), a host in lower case, and the port if it is not the scheme's own.
func CheckOrigin(text string) error {
	u, err := url.Parse(text)
	bad := func(why string) error { return fmt.Errorf("endpoint: %q is not an origin: %s", text, why) }
	switch {
	case strings.Contains(text, "*"):
		return bad("it must be written out, without *")
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return bad("want https://HOST or https://HOST:PORT")
	case text != u.Scheme+"://"+u.Host:
		return bad("want scheme, host and port only, without a / at the end")
	case u.Scheme == "http" && !loopback.Host(u.Host):
		return bad("http is for loopback; want https")
	}
	host, port := u.Hostname(), u.Port()
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" || ip.String() != host || ip.Is6() != strings.HasPrefix(u.Host, "[") {
			return bad("want the address as browsers write it")
		}
	} else if !hostName.MatchString(host) || len(host) > 253 {
		return bad("want a host name in lower case (xn--… for letters beyond a to z)")
	}
	if n, err := strconv.Atoi(port); port != "" && (err != nil || strconv.Itoa(n) != port || n < 1 || n > 1<<16-1) || strings.HasSuffix(u.Host, ":") {
		return bad("the port is no number from 1 to 65535")
	} else if u.Scheme == "https" && n == 443 || u.Scheme == "http" && n == 80 {
		return bad("browsers leave the scheme's own port out")
	}
	return nil
}

// pages are the origins whose pages may call a server. If there are none, the server does not look at
// origins at all: a request of a page is like anyone's, and its browser lets no page read the answer.
type pages struct {
	origins map[string]bool
	refused atomic.Int64
}

func newPages(origins []string) (*pages, error) {
	if len(origins) == 0 {
		return nil, nil
	}
	p := &pages{origins: map[string]bool{}}
	for _, o := range origins {
		if err := CheckOrigin(o); err != nil {
			return nil, err
		}
		p.origins[o] = true
	}
	return p, nil
}

// greet sets what a browser has to know about the answer, whatever the answer will be. It returns
// whether the request comes from a page of another origin. A request that names no origin comes from a
// program, or from a page that can neither read the answer nor choose the method.
func (p *pages) greet(w http.ResponseWriter, r *http.Request) (wrong bool) {
	if p == nil {
		return false
	}
	h := w.Header()
	h.Add("Vary", "Origin")
	from := r.Header["Origin"]
	if len(from) == 0 {
		return false
	}
	if len(from) > 1 || !p.origins[from[0]] {
		return true
	}
	h.Set("Access-Control-Allow-Origin", from[0])
	h.Set("Access-Control-Expose-Headers", pageReads)
	return false
}

// preflight answers a browser's question whether a page of this origin may send a request, and returns
// false if the request is no such question.
func (p *pages) preflight(w http.ResponseWriter, r *http.Request) bool {
	if p == nil || r.Method != http.MethodOptions || r.Header.Get("Origin") == "" || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	h := w.Header()
	h.Del("Access-Control-Expose-Headers")
	h.Set("Access-Control-Allow-Methods", pageMethods)
	h.Set("Access-Control-Allow-Headers", pageHeaders)
	h.Set("Access-Control-Max-Age", pageAge)
	w.WriteHeader(http.StatusNoContent)
	return true
}

// refuse answers a request of a page that may not call.
func (p *pages) refuse(w http.ResponseWriter) {
	p.refused.Add(1)
	Refuse(w, wire.Refused, "pages of this origin may not call this server")
}
