package coordinator

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/exchange"
)

// ErrUnable is wrapped if an aggregator has answered, and does not have what the sums need.
var ErrUnable = errors.New("the aggregator cannot sum this")

// ableTime is how long an aggregator may take to say what it has.
const ableTime = 10 * time.Second

// CheckAggregator asks an aggregator whether it has what sums need: those with proofs, and those with
// tokens of a registrar, whose key is given; nil: without tokens. An error does not wrap ErrUnable if the aggregator does not answer.
func CheckAggregator(ctx context.Context, g *Aggregator, proofs bool, registrar ed25519.PublicKey) error {
	if !proofs && registrar == nil {
		return nil // any aggregator can
	}
	ctx, done := context.WithTimeout(ctx, ableTime)
	defer done()
	b, _, err := endpoint.Do(ctx, g.Client, http.MethodGet, strings.TrimSuffix(g.URL, "/")+exchange.AbilitiesPath, nil, 4<<10)
	if err != nil {
		return fmt.Errorf("aggregator: %w", err)
	}
	var a exchange.Abilities
	if err := json.Unmarshal(b, &a); err != nil {
		return fmt.Errorf("%w: what it says of itself cannot be read: %w", ErrUnable, err)
	}
	no := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrUnable, fmt.Sprintf(format, args...))
	}
	switch {
	case proofs && len(a.SigningKey) == 0:
		return no("it has no signing key (signing-key: in its configuration), which sums with proofs need")
	case proofs && !bytes.Equal(a.SigningKey, g.Key):
		return no("its signing key is another than the one that this coordinator knows (aggregator: key:)")
	case proofs && !a.Mark:
		return no("it has no mark (mark: in its configuration), which sums with proofs need")
	case registrar != nil && len(a.Registrar) == 0:
		return no("it has no registrar's key (registrar: in its configuration), which sums with tokens need")
	case registrar != nil && !bytes.Equal(a.Registrar, registrar):
		return no("its registrar's key is another than the one that this coordinator knows (registrar: key:)")
	}
	return nil
}

// able asks the aggregator before a round is announced, and once more before it is charged: a round that
// it refuses after that would wait for its operator.
func (r *runner) able(ctx context.Context) error {
	if r.sum == nil && r.proved == nil {
		return nil
	}
	var registrar ed25519.PublicKey
	if r.tokens != nil {
		registrar = r.s.config.Shuffler.Registrar
	}
	return CheckAggregator(ctx, r.s.config.Aggregator, r.proved != nil, registrar)
}
