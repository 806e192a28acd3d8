package client

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"

	"strings"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// headsFile is a file of a client's directory: a header, then for each population and
// coordinator the furthest head of the ledger that an announcement told, on one line:
//
//	POPULATION KEY ENTRIES DIGEST OPENS
//
// KEY is the beginning of the coordinator's key, OPENS when the round opened (Unix ms).
const (
	headsFile   = "heads"
	headsHeader = "riffle-client-heads 1"
)

// headKey names a coordinator's ledger.
type headKey struct {
	population wire.ID
	key        [8]byte
}

// told is a head, and when the round that told it opened.
type told struct {
	wire.Head
	opens int64
}

// heads are the furthest heads that this process's clients were told, durably. A coordinator
// whose store was restored from an old copy tells one that is not as far.
type heads struct {
	store Store
	mu    sync.Mutex
	last  map[headKey]told
}

func openHeads(s Store) (*heads, error) {
	h := &heads{store: s, last: map[headKey]told{}}
	b, err := s.Read(headsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return nil, fmt.Errorf("client: %v", err)
	}
	h.last, err = parseHeads(b)
	if err != nil {
		return nil, fmt.Errorf("client: %s: %v", s.Path(headsFile), err)
	}
	return h, nil
}

// ReadHead returns the furthest head of a coordinator's ledger that clients were told, from a copy of their
// directory's file heads.
func ReadHead(path string, p wire.ID, coordinator ed25519.PublicKey) (wire.Head, error) {
	b, err := durable.ReadFile(path)
	if err != nil {
		return wire.Head{}, fmt.Errorf("client: %w", err)
	}
	all, err := parseHeads(b)
	if err != nil {
		return wire.Head{}, fmt.Errorf("client: %s: %v", path, err)
	}
	t, ok := all[headKey{p, [8]byte(coordinator)}]
	if !ok {
		return wire.Head{}, fmt.Errorf("client: %s: it tells nothing of the ledger of this coordinator and population", path)
	}
	return t.Head, nil
}

func parseHeads(b []byte) (map[headKey]told, error) {
	lines := strings.Split(string(b), "\n")
	if lines[0] != headsHeader || lines[len(lines)-1] != "" {
		return nil, errors.New("not a file of ledgers' heads of this version")
	}
	all := map[headKey]told{}
	for _, line := range lines[1 : len(lines)-1] {
		k, t, err := parseHead(line)
		if err != nil {
			return nil, err
		}
		all[k] = t
	}
	return all, nil
}

func parseHead(line string) (k headKey, t told, err error) {
	var population, key, digest []byte
	if n, err := fmt.Sscanf(line, "%x %x %d %x %d", &population, &key, &t.Entries, &digest, &t.opens); n != 5 || err != nil {
		return k, t, fmt.Errorf("line %.20q", line)
	}
	if copy(k.population[:], population) != len(k.population) || copy(k.key[:], key) != len(k.key) || copy(t.Digest[:], digest) != len(t.Digest) || line != formatHead(k, t) {
		return k, t, fmt.Errorf("line %.20q", line)
	}
	return k, t, nil
}

func formatHead(k headKey, t told) string {
	return fmt.Sprintf("%s %s %d %s %d", hex.EncodeToString(k.population[:]), hex.EncodeToString(k.key[:]), t.Entries, hex.EncodeToString(t.Digest[:]), t.opens)
}

// headSkew is the largest difference between the clocks of coordinators that share a store.
const headSkew = time.Minute

// check holds an announcement against the furthest head, and keeps a further one. before is the
// head that the task's last announcement told; nil if there is none.
//
// Rounds of several tasks may be open at a time, and be seen in another order than they were
// announced in. So a head that is less far is refused if the round opened later, or if an
// earlier round of the task told more.
func (h *heads) check(k headKey, ann wire.Announcement, before *wire.Head) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	last, some := h.last[k]
	if ann.Ledger == nil {
		if some {
			return client.Refuse(client.CauseLedger, "the coordinator does not tell the ledger's head, which had %d entries before", last.Entries)
		}
		return nil
	}
	if before != nil {
		if err := ann.Ledger.Follows(*before); err != nil {
			return client.Refuse(client.CauseLedger, "%v: the coordinator was restored from an old copy", err)
		}
	}
	if some {
		err := ann.Ledger.Follows(last.Head)
		if older := ann.Ledger.Entries < last.Entries; older && ann.Opens <= last.opens+headSkew.Milliseconds() {
			return nil
		}
		if err != nil {
			return client.Refuse(client.CauseLedger, "%v: the coordinator was restored from an old copy", err)
		}
		if *ann.Ledger == last.Head && ann.Opens <= last.opens {
			return nil
		}
	}
	next := told{*ann.Ledger, ann.Opens}
	if some && *ann.Ledger == last.Head { // nothing is lost if a later time is not kept
		h.last[k] = next
		return nil
	}
	if err := h.write(k, next); err != nil {
		return fmt.Errorf("client: %w: %v", errStore, err)
	}
	h.last[k] = next
	return nil
}

// write replaces the file by one with another head.
func (h *heads) write(k headKey, next told) error {
	var b bytes.Buffer
	fmt.Fprintln(&b, headsHeader)
	for other, t := range h.last {
		if other != k {
			fmt.Fprintln(&b, formatHead(other, t))
		}
	}
	fmt.Fprintln(&b, formatHead(k, next))
	return h.store.Write(headsFile, b.Bytes())
}
