package dashboard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/riffle-dp/riffle/internal/loopback"
)

// MinToken is the least length of a token.
const MinToken = 16

// NewToken draws a token.
func NewToken() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func checkToken(token string, loopback bool) error {
	switch {
	case token == "" && !loopback:
		return fmt.Errorf("dashboard: an address that others can reach needs a token")
	case token != "" && len(token) < MinToken:
		return fmt.Errorf("dashboard: a token of %d characters can be guessed, it must have at least %d", len(token), MinToken)
	case strings.TrimFunc(token, func(r rune) bool { return r > ' ' && r < 0x7f }) != "":
		return fmt.Errorf("dashboard: a token must be of visible ASCII characters")
	}
	return nil
}

// door decides who may look at the page.
type door struct {
	loopback bool
	digest   [32]byte // of the token
	open     bool     // there is no token: everybody may look
	cookie   string   // the cookie's name
	pass     string   // the cookie's value, which does not reveal the token
}

func newDoor(token string, loopback bool) door {
	d := door{loopback: loopback, open: token == "", digest: sha256.Sum256([]byte(token))}
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("riffle dashboard cookie"))
	sum := mac.Sum(nil)
	// All ports of a host share cookies; the name tells pages apart.
	d.cookie, d.pass = "riffle-"+hex.EncodeToString(sum[:4]), hex.EncodeToString(sum[4:])
	return d
}

// admit returns true if a request may pass. Otherwise it has answered the request.
func (d *door) admit(w http.ResponseWriter, r *http.Request) bool {
	if d.loopback && !loopback.Host(r.Host) {
		refuse(w, http.StatusMisdirectedRequest, "this page is for this machine only: open it by 127.0.0.1 or localhost")
		return false
	}
	if d.open {
		return true
	}
	if c, err := r.Cookie(d.cookie); err == nil && subtle.ConstantTimeCompare([]byte(c.Value), []byte(d.pass)) == 1 {
		return d.dropToken(w, r)
	}
	if scheme, value, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") && d.is(value) {
		return true
	}
	if d.is(r.URL.Query().Get("token")) {
		// SameSite is Lax, so that a link to the page from elsewhere works; requests change
		// nothing here.
		http.SetCookie(w, &http.Cookie{Name: d.cookie, Value: d.pass, Path: "/", HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteLaxMode})
		return d.dropToken(w, r)
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="riffle dashboard"`)
	refuse(w, http.StatusUnauthorized, "a token is needed: open the page once with ?token=TOKEN, as it was printed or configured")
	return false
}

// dropToken redirects to the address without its token, which would otherwise be seen and
// kept. It returns false if it has answered.
func (d *door) dropToken(w http.ResponseWriter, r *http.Request) bool {
	query := r.URL.Query()
	if !query.Has("token") {
		return true
	}
	query.Del("token")
	to := url.URL{Path: r.URL.Path, RawQuery: query.Encode()}
	if strings.HasPrefix(to.Path, "//") || !strings.HasPrefix(to.Path, "/") { // a path that leads to another host
		to.Path = "/"
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, to.String(), http.StatusSeeOther)
	return false
}

func (d *door) is(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], d.digest[:]) == 1
}
