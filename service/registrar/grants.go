package registrar

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/mark"
)

// The grants are the list of all tokens that were asked for, in the append-only ledger of the
// registrar's store. Each entry holds the digest of the one before. A mark outside the store says
// how long the list is: a store that was restored from an old copy is refused, because it may have
// forgotten grants, and a client could get other tokens for the same rounds.

const grantFormat = 1

// grant is an entry of the list: what a client asked to be signed.
type grant struct {
	Format  int           `json:"format"`
	After   document.Hash `json:"after"` // SHA-256 of the entry before
	Client  []byte        `json:"client"`
	Epoch   []byte        `json:"epoch"`
	First   int64         `json:"first"`
	Blinded document.Hash `json:"blinded"` // SHA-256 of the blinded messages
}

// granted names a grant: a client's tokens of an epoch from a place on.
type granted struct {
	client, epoch wire.ID
	first         int64
}

type grants struct {
	mark.List[granted, document.Hash]
}

func newGrants(s mark.Log, m mark.Keeper) *grants {
	return &grants{mark.List[granted, document.Hash]{Name: "registrar: grants of tokens", Log: s, Mark: m, Apply: applyGrant}}
}

// applyGrant adds an entry that was stored.
func applyGrant(all map[granted]document.Hash, head [32]byte, b []byte) error {
	var e grant
	if err := document.Decode(b, grantFormat, &e); err != nil {
		return err
	}
	if len(e.Client) != len(wire.ID{}) || len(e.Epoch) != len(wire.ID{}) {
		return errors.New("it names no client")
	}
	name := granted{wire.ID(e.Client), wire.ID(e.Epoch), e.First}
	if _, twice := all[name]; twice || e.After != head {
		return errors.New("it does not follow from those before")
	}
	all[name] = e.Blinded
	return nil
}

// errOther says that a client was granted tokens for other blinded messages.
var errOther = errors.New("registrar: the client has asked for other tokens of this epoch")

// give makes a grant durable, once. It returns nil if the client was granted the same before, and
// errOther if it was granted something else.
func (g *grants) give(ctx context.Context, name granted, blinded document.Hash) error {
	return g.Add(ctx, name, func(before document.Hash, head [32]byte) ([]byte, error) {
		if before == blinded {
			return nil, nil
		}
		if before != (document.Hash{}) {
			return nil, errOther
		}
		return json.Marshal(grant{grantFormat, head, name.client[:], name.epoch[:], name.first, blinded})
	})
}
