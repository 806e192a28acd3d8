package operate

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// This file makes a coordinator's mark again that was lost. Whether the ledger is complete is then told by
// others: with announce-ledger the shuffler gives no batch before it was told of the charge, and keeps the
// furthest head that it was told of; and so do clients.

// promisesOf returns a coordinator's file of promises, which lies beside its mark.
func promisesOf(c config.Coordinator) coordinator.PromiseFile {
	return coordinator.PromiseFile(c.Mark + ".rounds")
}

// saveMark makes a coordinator's mark, and the promises beside it if they are missing. A mark says that both
// are there, so it is the last. lost counts the rounds that will end without a step.
func saveMark(ctx context.Context, c config.Coordinator, m ledger.Mark, s *store.Store, book *ledger.Book, tasks []wire.Task) (lost int, err error) {
	lost, err = promisesOf(c).Create(ctx, s, book, tasks)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return 0, err
	}
	if _, err := coordinator.MarkFile(c.Mark).Load(); !errors.Is(err, store.ErrNotFound) {
		return lost, err
	}
	return lost, coordinator.MarkFile(c.Mark).Save(m)
}

// recovered says what RecoverMark has done. Its keys are part of the command line's contract.
type recovered struct {
	Entries  int64  `json:"entries"`
	Digest   string `json:"digest"`
	Shuffler int64  `json:"shuffler"`            // entries that the shuffler was told of
	Clients  int64  `json:"clients"`             // the most entries that a client was told of
	Lost     int    `json:"rounds_without_step"` // open rounds of which nobody knows what was settled
}

// RecoverMark makes a coordinator's high-water mark again, or the promises beside it, if they were lost. The ledger
// must have all that the shuffler, which it asks, and clients, by their files heads, were told of.
func RecoverMark(ctx context.Context, path string, clients []string) (*recovered, error) {
	c, err := config.Load[config.Coordinator](path)
	if err != nil {
		return nil, err
	}
	if !c.AnnounceLedger {
		return nil, config.Errorf("%s: without announce-ledger neither the shuffler nor clients know how far the ledger was written", path)
	}
	key, err := config.LoadSigning(c.SigningKey)
	if err != nil {
		return nil, config.Errorf("%w", err)
	}
	source, err := (&server{process: c.Process}).source(c.Shuffler, c.Registrar)
	if err != nil {
		return nil, err
	}
	defer source.Client.CloseIdleConnections()
	// A head of no entries: it follows none, so the shuffler answers with what it has.
	ask := wire.Sign(key, wire.LabelHead, wire.Encode(wire.HeadStatement{Population: c.ID}))
	told, err := source.Ledger(ctx, ask)
	if err != nil {
		return nil, fmt.Errorf("operate: the shuffler does not say how far the ledger was written: %w", err)
	}
	var heads []wire.Head
	for _, file := range clients {
		h, err := client.ReadHead(file, c.ID, publicOf(key))
		if err != nil {
			return nil, config.Errorf("%w", err)
		}
		heads = append(heads, h)
	}
	return recoverMark(ctx, c, publicOf(key), told, heads)
}

// recoverMark is RecoverMark with what others were told.
func recoverMark(ctx context.Context, c config.Coordinator, public ed25519.PublicKey, told wire.Head, clients []wire.Head) (*recovered, error) {
	marked, err := coordinator.MarkFile(c.Mark).Load()
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("operate: the mark is there, and cannot be read (take it away if it is damaged): %w", err)
	}
	if _, e := promisesOf(c).Load(); err == nil && !errors.Is(e, mark.ErrNone) {
		return nil, errors.Join(config.Errorf("nothing is missing: %s counts %d entries", c.Mark, marked.Entries), e)
	}
	s, err := openStore(ctx, c.Store)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	log, err := coordinator.OpenLog(ctx, s)
	if err != nil {
		return nil, err
	}
	book, err := ledger.Verify(ctx, log, marked, c.ID)
	if err != nil {
		return nil, err
	}
	head := book.Head()
	r := &recovered{Entries: head.Entries, Digest: hex.EncodeToString(head.Digest[:]), Shuffler: told.Entries}
	if told.Entries == 0 && head.Entries > 0 {
		return nil, fmt.Errorf("%w: the shuffler was told of no entry of this ledger, which has %d: nobody can tell whether it is complete", ledger.ErrMark, head.Entries)
	}
	if !book.Had(told) {
		return nil, fmt.Errorf("%w: %d entries, and the shuffler was told of %d, which are others or more: this store is an old copy, or was edited", ledger.ErrMark, head.Entries, told.Entries)
	}
	for _, h := range clients {
		if !book.Had(h) {
			return nil, fmt.Errorf("%w: %d entries, and a client was told of %d, which are others or more: this store is an old copy, or was edited", ledger.ErrMark, head.Entries, h.Entries)
		}
		r.Clients = max(r.Clients, h.Entries)
	}
	var tasks []wire.Task
	keys, err := s.List(ctx, store.Values, createdPrefix)
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		_, w, err := readCreated(ctx, s, k, public)
		if errors.Is(err, wire.ErrSignature) { // of an earlier key: it cannot be run any more
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("operate: %s: %w", k, err)
		}
		tasks = append(tasks, w)
	}
	totals, err := addUp(c, book)
	if totals == nil {
		return nil, err
	}
	if r.Lost, err = saveMark(ctx, c, ledger.Mark{Entries: head.Entries, Digest: head.Digest, Eps: float64(totals.Epsilon)}, s, book, tasks); err != nil {
		return nil, err
	}
	return r, nil
}
