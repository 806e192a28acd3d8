package aggregator

import (
	"crypto/ed25519"
	"encoding/json"
	"net/http"

	"github.com/riffle-dp/riffle/service/exchange"
)

// serveAbilities says what this aggregator has. Only the coordinator reaches it; the keys are public.
func (s *Service) serveAbilities(w http.ResponseWriter, _ *http.Request) {
	a := exchange.Abilities{Mark: s.history != nil, Registrar: s.config.Shuffler.Registrar}
	if s.config.Key != nil {
		a.SigningKey = s.config.Key.Public().(ed25519.PublicKey)
	}
	b, err := json.Marshal(a)
	if err != nil {
		panic(err) // keys and a flag always have a JSON form
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(b) // fails if the caller has gone
}
