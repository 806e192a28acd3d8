package client

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// For each round of a task with receipts that is not compared yet there is a text file,
// receipts/ANNOUNCEMENT, made before any client of the process decides:
//
//	riffle-client-receipts 1
//	look|skip ANNOUNCEMENT        the coin, and the announcement's bytes
//	mine CLIENT RECEIPT…          written before the report is charged; only after look
//	taken CLIENT                  written when the shuffler has answered that it has the report
//
// A last line without its newline does not count, nor does what follows a zero byte.
const (
	receiptsDir    = "receipts"
	receiptsHeader = "riffle-client-receipts 1\n"
)

// kept is the content of such a file.
type kept struct {
	ann   wire.Announcement
	look  bool // whether the list of receipts is looked at
	mine  map[wire.ID][]wire.ID
	taken map[wire.ID]bool
}

func newKept(ann wire.Announcement, look bool) kept {
	return kept{ann, look, map[wire.ID][]wire.ID{}, map[wire.ID]bool{}}
}

// start returns the first two lines.
func (k kept) start() []byte {
	coin := "skip"
	if k.look {
		coin = "look"
	}
	return fmt.Appendf([]byte(receiptsHeader), "%s %x\n", coin, wire.Encode(k.ann))
}

func mineLine(id wire.ID, receipts []wire.ID) []byte {
	b := fmt.Appendf(nil, "mine %x", id)
	for _, r := range receipts {
		b = fmt.Appendf(b, " %x", r)
	}
	return append(b, '\n')
}

func takenLine(id wire.ID) []byte { return fmt.Appendf(nil, "taken %x\n", id) }

// decodeKept reads a file, and returns how many of its bytes are whole lines.
func decodeKept(b []byte) (k kept, size int, err error) {
	damaged := func(n int, why string) (kept, int, error) {
		return kept{}, 0, fmt.Errorf("client: receipts: line %d: %s", n, why)
	}
	if !bytes.HasPrefix(b, []byte(receiptsHeader)) {
		return damaged(1, "not a file of this version")
	}
	b = durable.Text(b)
	size = len(receiptsHeader)
	for n := 2; ; n++ {
		line, _, whole := bytes.Cut(b[size:], []byte("\n"))
		if !whole {
			if n == 2 {
				return damaged(2, "cut off")
			}
			return k, size, nil
		}
		size += len(line) + 1
		f := strings.Split(string(line), " ")
		if n == 2 {
			raw, err := hex.DecodeString(f[len(f)-1])
			if err != nil || len(f) != 2 || f[0] != "look" && f[0] != "skip" {
				return damaged(n, "no announcement")
			}
			ann, err := wire.Decode[wire.Announcement](raw)
			if err != nil {
				return damaged(n, err.Error())
			}
			k = newKept(ann, f[0] == "look")
			continue
		}
		ids := make([]wire.ID, len(f)-1)
		for i, text := range f[1:] {
			raw, err := hex.DecodeString(text)
			if err != nil || len(raw) != len(ids[i]) {
				return damaged(n, "no id")
			}
			ids[i] = wire.ID(raw)
		}
		switch {
		case f[0] == "mine" && len(ids) > 1:
			k.mine[ids[0]] = ids[1:]
		case f[0] == "taken" && len(ids) == 1:
			k.taken[ids[0]] = true
		default:
			return damaged(n, "no receipts")
		}
	}
}

func receiptsFile(announcement [32]byte) string {
	return receiptsDir + "/" + hex.EncodeToString(announcement[:])
}

// openReceipts reads the rounds that are not compared yet. A report whose charge was not stored
// was never sent, and its receipts do not count.
func (b *book) openReceipts(charged map[[32]byte]map[wire.ID][32]byte) error {
	b.kept = map[[32]byte]kept{}
	names, err := b.store.List(receiptsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("client: %v", err)
	}
	for _, name := range names {
		path := receiptsDir + "/" + name
		if strings.HasPrefix(name, ".") { // a temporary file of a write that was cut off
			if err := b.store.Remove(path); err != nil {
				return fmt.Errorf("client: %v", err)
			}
			continue
		}
		content, err := b.store.Read(path)
		if err != nil {
			return fmt.Errorf("client: %v", err)
		}
		k, size, err := decodeKept(content)
		if err != nil {
			return fmt.Errorf("%s: %w", b.store.Path(path), err)
		}
		digest := wire.Digest(k.ann)
		if hex.EncodeToString(digest[:]) != name {
			return fmt.Errorf("client: %s holds another round's receipts", b.store.Path(path))
		}
		if size < len(content) {
			if err := b.store.Cut(path, int64(size)); err != nil {
				return fmt.Errorf("client: %v", err)
			}
		}
		for id := range k.mine {
			if _, sent := charged[digest][id]; !sent {
				delete(k.mine, id)
			}
		}
		for id := range k.taken {
			if _, sent := charged[digest][id]; !sent {
				delete(k.taken, id)
			}
		}
		b.kept[digest] = k
	}
	return nil
}

// keep makes the file of a round.
func (b *book) keep(digest [32]byte, k kept) error {
	if err := b.store.Write(receiptsFile(digest), k.start()); err != nil {
		return fmt.Errorf("client: %w: %v", errStore, err)
	}
	return nil
}
