package shuffler

import (
	"bytes"
	"crypto/cipher"
	"fmt"
	"slices"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Draw chooses the k participants of a Sampled round, uniformly without replacement. The
// shuffler must draw, because amplification by sampling needs that the coordinator does not
// know who takes part.
func Draw(src rng.Source, ann wire.Announcement) []int {
	return sample.Subset(src, nil, int(ann.Population), int(ann.Sample))
}

// Drawn says which enrolled clients may report in a round. It is a function of a 16-byte key
// and the roster, so nothing else is stored and several processes agree. Clients are ordered
// by AES-128 of their ids under the key, a uniform order as far as AES is a random
// permutation; a run of that order is drawn. It is safe for concurrent use.
type Drawn struct {
	Size     int64 // number of clients that may report
	all      bool
	order    cipher.Block
	from, to [16]byte // the images (AES of the id) of the first and the last client in the run
}

// NewDrawn draws for an announcement: the first k of the order for Sampled, the round's block
// for Once, all clients for All and CheckIn. For Once the key must be the epoch's, so that
// the epoch's blocks are disjoint. The roster holds the enrolled clients without repetition,
// as many as the announcement says.
func NewDrawn(ann wire.Announcement, key [16]byte, roster []wire.ID) (Drawn, error) {
	if int64(len(roster)) != ann.Population {
		return Drawn{}, fmt.Errorf("shuffler: draw among %d clients, announced are %d", len(roster), ann.Population)
	}
	var from, to int64
	switch ann.Participation {
	case dp.All, dp.CheckIn:
		return Drawn{all: true, Size: ann.Population}, nil
	case dp.Sampled:
		to = ann.Sample
	case dp.Once:
		blocks, err := blocksOf(ann)
		if err != nil {
			return Drawn{}, err
		}
		_, block := blocks.Of(ann.Round)
		from, to = blocks.Range(block)
	default:
		return Drawn{}, fmt.Errorf("shuffler: participation %q", ann.Participation)
	}
	if from < 0 || from >= to || to > ann.Population {
		return Drawn{}, fmt.Errorf("shuffler: draw of places %d to %d of %d clients", from, to, ann.Population)
	}
	d := Drawn{order: NewOrder(key), Size: to - from}
	images := make([][16]byte, len(roster))
	for i, id := range roster {
		images[i] = d.image(id)
	}
	slices.SortFunc(images, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	d.from, d.to = images[from], images[to-1]
	return d, nil
}

func (d Drawn) image(id wire.ID) (out [16]byte) {
	d.order.Encrypt(out[:], id[:])
	return out
}

// Has says whether an enrolled client may report.
func (d Drawn) Has(id wire.ID) bool {
	if d.all {
		return true
	}
	image := d.image(id)
	return bytes.Compare(d.from[:], image[:]) <= 0 && bytes.Compare(image[:], d.to[:]) <= 0
}

// Epoch returns the epoch of a Once round, from 1.
func Epoch(ann wire.Announcement) (int64, error) {
	blocks, err := blocksOf(ann)
	if err != nil {
		return 0, err
	}
	epoch, _ := blocks.Of(ann.Round)
	return epoch, nil
}

// blocksOf returns the division into the announcement's number of blocks.
func blocksOf(ann wire.Announcement) (schedule.Blocks, error) {
	if ann.PerEpoch < 1 || ann.PerEpoch > ann.Population {
		return schedule.Blocks{}, fmt.Errorf("shuffler: %d blocks of %d clients", ann.PerEpoch, ann.Population)
	}
	if ann.MinClients > 0 { // the number of blocks stays when the number of clients changes
		return schedule.Blocks{Clients: ann.Population, PerEpoch: ann.PerEpoch, Smallest: ann.Population / ann.PerEpoch}, nil
	}
	blocks, err := schedule.NewBlocks(ann.Population, ann.Population/ann.PerEpoch)
	if err != nil {
		return schedule.Blocks{}, err
	}
	if blocks.PerEpoch != ann.PerEpoch {
		return schedule.Blocks{}, fmt.Errorf("shuffler: %d clients are not dealt out to %d blocks", ann.Population, ann.PerEpoch)
	}
	return blocks, nil
}
