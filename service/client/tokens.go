package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/token"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// A client keeps its tokens of a task in a file of its own. Before it asks for them the file holds
// a header, the letter s and the seed that all its requests follow from; a process that ends
// between asks for the same tokens again. When all have come, the file is replaced: it holds the
// header, the letter t and the tokens in the order of their keys, and the seed is gone. Tokens of
// decided rounds are overwritten with zeros.
const (
	tokensDir    = "tokens"
	tokensHeader = "riffle-client-tokens 1\n"
	kindSeed     = 's'
	kindTokens   = 't'
)

// maxTokenKeys bounds the answer with an epoch's keys.
const maxTokenKeys = wire.MaxTokens*wire.TokenModulus + 1<<10

// purse is a member's tokens of a task.
type purse struct {
	store Store
	name  string
	keys  *token.Keys
}

// tokenKeys fetches the keys of a task's tokens and checks them: the registrar has signed them, and
// the task names their digest, the same for all clients.
func (f *Fleet) tokenKeys(ctx context.Context, t *client.Terms) (*token.Keys, error) {
	if f.config.Registrar == "" {
		return nil, client.Refuse(client.CausePolicy, "its messages need tokens, and no registrar to ask for them is configured")
	}
	path := fmt.Sprintf("%s/v1/epochs/%x", f.config.Registrar, t.Task.Tokens.Epoch)
	a, err := f.web.do(ctx, methodGet, path, nil, "", maxTokenKeys, 0)
	if err != nil {
		return nil, refuseAnswer(err)
	}
	if a.status != statusOK {
		return nil, a.unexpected("token keys")
	}
	message, err := wire.Verify(f.config.RegistrarKey, wire.LabelTokenKeys, a.body)
	if err != nil {
		return nil, client.Refuse(client.CauseSignature, "token keys: %v", err)
	}
	m, err := wire.Decode[wire.TokenKeys](message)
	if err != nil {
		return nil, client.Refuse(client.CauseMessage, "token keys: %v", err)
	}
	keys, err := token.ForTask(m, t.Task)
	if err != nil {
		return nil, client.Refuse(client.CauseTokens, "%v", err)
	}
	return keys, nil
}

// fetchTokens has every member get all its tokens of a task, before its first round and whatever
// it decides later, so that asking says nothing about taking part. A member that gets none does
// not report. The error says that the client's own files cannot be used, or that the keys are
// refused.
func (f *Fleet) fetchTokens(ctx context.Context, t *client.Terms) error {
	if t.Task.Tokens == (wire.Tokens{}) {
		return nil
	}
	var keys *token.Keys
	if err := f.persist(ctx, t.ID, 0, func() (err error) {
		keys, err = f.tokenKeys(ctx, t)
		return err
	}); err != nil {
		if refused := (*client.Refused)(nil); errors.As(err, &refused) {
			refused.In(t.ID, 0)
			f.notify(Notice{What: Declined, Task: t.ID, Err: refused})
		}
		return err
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	slots := make(chan struct{}, f.config.Workers)
	for _, m := range f.members {
		select {
		case slots <- struct{}{}: // blinding and unblinding is most of the work
		case <-ctx.Done():
			wg.Wait()
			return ctx.Err()
		}
		wg.Go(func() {
			defer func() { <-slots }()
			p := &purse{f.config.Store, fmt.Sprintf("%s/%x-%x", tokensDir, m.id, t.ID), keys}
			err := f.fill(ctx, m, p, t)
			if refused := (*client.Refused)(nil); errors.As(err, &refused) {
				f.notify(Notice{What: Declined, Task: t.ID, Client: m.id, Err: refused.In(t.ID, 0)})
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if failed = errors.Join(failed, err); err == nil {
				m.mu.Lock()
				m.purses[t.ID] = p
				m.mu.Unlock()
			}
		})
	}
	wg.Wait()
	return failed
}

// fill makes sure that a purse holds its tokens, and none of rounds that are decided.
func (f *Fleet) fill(ctx context.Context, m *member, p *purse, t *client.Terms) error {
	b, err := p.store.Read(p.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		var seed [32]byte
		rand.Read(seed[:])
		b = append([]byte(tokensHeader+string(rune(kindSeed))), seed[:]...)
		err = p.store.Write(p.name, b)
	}
	if err != nil {
		return fmt.Errorf("client: %w: %v", errStore, err)
	}
	rest, ok := bytes.CutPrefix(b, []byte(tokensHeader))
	want, left := len(p.keys.Epoch().Moduli), 0
	switch {
	case ok && len(rest) == 1+32 && rest[0] == kindSeed:
		if err := f.buy(ctx, m, p, t, [32]byte(rest[1:])); err != nil {
			return err
		}
	case ok && len(rest) == 1+want*wire.TokenBytes && rest[0] == kindTokens:
		// A power failure may have kept any part of a wipe: it begins again at the first token that is left.
		for left = 0; left < want && [wire.TokenBytes]byte(rest[1+left*wire.TokenBytes:]) == none; left++ {
		}
	default:
		return client.Refuse(client.CauseTokens, "the file of this client's tokens is damaged")
	}
	m.mu.Lock()
	var decided int64
	if s := m.history.Of(t.ID); s != nil {
		decided = s.Round
	}
	m.mu.Unlock()
	return p.wipe(decided, left)
}

// none is a token that was wiped.
var none [wire.TokenBytes]byte

// buy asks the registrar for all tokens that follow from a seed, and replaces the seed by them.
func (f *Fleet) buy(ctx context.Context, m *member, p *purse, t *client.Terms, seed [32]byte) error {
	pending := token.NewPending(p.keys, t.ID, seed)
	content := append([]byte(tokensHeader), kindTokens)
	for first := 0; first < len(p.keys.Epoch().Moduli); first += wire.MaxGrant {
		q, blinded, err := pending.Request(m.id, first)
		if err != nil {
			return client.Refuse(client.CauseTokens, "%v", err)
		}
		body := append(wire.Sign(m.credential.key, wire.LabelTokens, wire.Encode(q)), blinded...)
		var a answer
		if err := f.persist(ctx, t.ID, 0, func() error {
			f.flight <- struct{}{}
			defer func() { <-f.flight }()
			if a, err = f.web.do(ctx, methodPost, f.config.Registrar+"/v1/tokens", body, "", int64(len(blinded)), 0); err != nil {
				return refuseAnswer(err)
			}
			if a.again() {
				return a.unexpected("tokens")
			}
			return nil
		}); err != nil {
			return err
		}
		if a.status != statusOK {
			return client.Refuse(client.CauseTokens, "%v", a.unexpected("tokens"))
		}
		if content, err = pending.Finish(content, first, a.body); err != nil {
			return client.Refuse(client.CauseTokens, "%v", err)
		}
	}
	if err := p.store.Write(p.name, content); err != nil {
		return fmt.Errorf("client: %w: %v", errStore, err)
	}
	return nil
}

// errNoToken says that a client has no token for a message.
var errNoToken = errors.New("there is no token for this message")

// take returns the tokens of a round, by message. It spends nothing: the client's ledger does,
// which decides each round once. wipe is called before the report is sent.
func (p *purse) take(task [32]byte, round, messages int64) ([][wire.TokenBytes]byte, error) {
	first, ok := p.keys.Place(round, 0)
	if _, last := p.keys.Place(round, messages-1); !ok || !last {
		return nil, errNoToken
	}
	out := make([][wire.TokenBytes]byte, messages)
	for i := range out {
		if err := p.store.ReadAt(p.name, out[i][:], offset(first+i)); err != nil {
			return nil, fmt.Errorf("client: %w: %v", errStore, err)
		}
		if !p.keys.Verify(task, round, int64(i), &out[i]) {
			return nil, errNoToken
		}
	}
	return out, nil
}

func offset(place int) int64 { return int64(len(tokensHeader)) + 1 + int64(place)*wire.TokenBytes }

// wipe overwrites the tokens of all rounds up to this one, from place left on; if that is below 0, from the
// first after those that this process has wiped. Whoever finds the file later cannot tell by them which
// reports were this client's.
func (p *purse) wipe(round int64, left int) (err error) {
	end, ok := p.keys.Place(round+1, 0)
	if !ok {
		if end = len(p.keys.Epoch().Moduli); round < 1 {
			end = 0
		}
	}
	if end <= left || end == 0 {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("client: %w: %v", errStore, err)
		}
	}()
	if left >= 0 {
		return p.store.Zero(p.name, offset(left), offset(end))
	}
	// Tokens are wiped in their order, so what lies before zeros are zeros.
	// A browser's store loads the file for each read: several are read at once.
	const atOnce = 64
	from := end
	for found := false; from > 0 && !found; {
		n := min(from, atOnce)
		have := make([]byte, n*wire.TokenBytes)
		if err := p.store.ReadAt(p.name, have, offset(from-n)); err != nil {
			return err
		}
		for ; n > 0 && !found; n-- {
			if found = [wire.TokenBytes]byte(have[(n-1)*wire.TokenBytes:]) == none; !found {
				from--
			}
		}
	}
	return p.store.Zero(p.name, offset(from), offset(end))
}

// tokens returns the tokens of a member's messages in a round; none if the task has no tokens.
func (m *member) tokens(t *client.Terms, round int64) ([][wire.TokenBytes]byte, error) {
	if t.Task.Tokens == (wire.Tokens{}) {
		return nil, nil
	}
	m.mu.Lock()
	p := m.purses[t.ID]
	m.mu.Unlock()
	if p == nil {
		return nil, errNoToken
	}
	return p.take(t.ID, round, t.Task.PerClient())
}

// spend wipes the tokens of a charged round.
func (m *member) spend(t *client.Terms, round int64) error {
	m.mu.Lock()
	p := m.purses[t.ID]
	m.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.wipe(round, -1)
}
