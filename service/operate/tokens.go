package operate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/protocol/token"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/store"
)

// maxTokenKeys bounds the registrar's answer.
const maxTokenKeys = wire.MaxTokens*wire.TokenModulus + 1<<10

// tokensName names the object with the signed keys of a task's tokens.
func tokensName(id [32]byte) string { return fmt.Sprintf("tokens/%x", id) }

// askTokenKeys has the registrar make the keys of a new task's tokens, and puts them into the
// task. It returns them as the registrar signed them. If the task is not created after all, the
// keys are never used.
func (r *coordinatorProcess) askTokenKeys(ctx context.Context, w *wire.Task) ([]byte, error) {
	if r.registrar == nil {
		return nil, fmt.Errorf("bad input: tokens need a registrar with url, pins and key in the coordinator's configuration%w", train.ErrInput)
	}
	messages := w.PerClient()
	if w.LastRound() > wire.MaxTokens/messages {
		return nil, fmt.Errorf("bad input: up to %d rounds of %d messages need more than %d tokens a client%w", w.LastRound(), messages, wire.MaxTokens, train.ErrInput)
	}
	var epoch wire.ID
	rand.Read(epoch[:])
	address := fmt.Sprintf("%s/v1/epochs/%x?rounds=%d&messages=%d", strings.TrimSuffix(r.config.Registrar.URL, "/"), epoch, w.LastRound(), messages)
	var signed []byte
	for {
		var err error
		signed, _, err = endpoint.Do(ctx, r.registrar, http.MethodPut, address, nil, maxTokenKeys)
		if err == nil {
			break
		}
		refused := (*endpoint.Refusal)(nil)
		if !errors.As(err, &refused) || batch.IsRefused(err) != nil {
			return nil, fmt.Errorf("operate: the registrar makes no keys: %w", err)
		}
		select { // the keys are being made
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	message, err := wire.Verify(r.config.Registrar.Signer, wire.LabelTokenKeys, signed)
	if err != nil {
		return nil, fmt.Errorf("operate: keys of tokens: %w", err)
	}
	m, err := wire.Decode[wire.TokenKeys](message)
	if err != nil {
		return nil, err
	}
	w.Tokens = wire.Tokens{Epoch: epoch, Keys: wire.Digest(m)}
	if _, err := token.ForTask(m, *w); err != nil {
		return nil, fmt.Errorf("operate: the registrar: %w", err)
	}
	return signed, nil
}

// readTokenKeys reads the signed keys of a stored task's tokens; nil if it has none.
func readTokenKeys(ctx context.Context, s *store.Store, w wire.Task) ([]byte, error) {
	if w.Tokens == (wire.Tokens{}) {
		return nil, nil
	}
	return s.GetObject(ctx, tokensName(wire.Digest(w)))
}
