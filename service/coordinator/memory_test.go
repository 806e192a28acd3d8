package coordinator

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/mark"
)

// disk is what survives a crash, and what was written to it.
type disk struct {
	*memory.Disk
	t        testing.TB
	mark     ledger.Mark
	events   []string // in order: appends to the ledger, requests
	releases map[int64]string
	released func(record) // told every state
	drawn    map[string][]byte
	promised map[hash]promise
	named    map[hash]hash // the noise that a state has named, by announcement
}

func newDisk(t testing.TB) *disk {
	d := &disk{Disk: memory.NewDisk(), t: t, releases: map[int64]string{}, drawn: map[string][]byte{}, named: map[hash]hash{}, promised: map[hash]promise{}}
	d.Wrote = d.wrote
	return d
}

// store is a process's view of the disk.
func (d *disk) store(crash *stop) *memory.Store { return &memory.Store{Disk: d.Disk, Do: crash.do} }

// journal opens the ledger.
func (d *disk) journal(ctx context.Context, crash *stop, p wire.ID, limit ledger.Config) (*ledger.Journal, error) {
	mark := memory.Mark[ledger.Mark]{At: &d.mark, Do: crash.do, Check: func(old, now ledger.Mark) {
		if now.Entries < old.Entries || now.Entries > int64(len(d.Log)) {
			d.t.Errorf("the mark goes from %d to %d of %d entries", old.Entries, now.Entries, len(d.Log))
		}
		d.event(fmt.Sprint("marked ", now.Entries))
	}}
	return ledger.OpenJournal(ctx, onLedger{d.store(crash)}, mark, p, limit)
}

func (d *disk) event(s string) {
	d.Lock()
	defer d.Unlock()
	d.events = append(d.events, s)
}

// happened returns the events until now. Requests that were given up may still add some.
func (d *disk) happened() []string {
	d.Lock()
	defer d.Unlock()
	return slices.Clone(d.events)
}

// wrote holds what is written against what was.
func (d *disk) wrote(what memory.Kind, name string, old, data []byte) {
	switch {
	case what == memory.Entry:
		e, err := wire.Decode[wire.Entry](data)
		if err != nil {
			d.t.Error(err)
		}
		d.events = append(d.events, fmt.Sprintf("charged %x", e.Announcement))
	case what == memory.Value && strings.HasPrefix(name, "state."):
		d.saw(data)
	case what == memory.Object:
		if old != nil && !bytes.Equal(old, data) {
			d.t.Errorf("object %s is given other data", name)
		}
		if strings.HasPrefix(name, "noise/") {
			d.drawn[name[len(name)-64:]] = bytes.Clone(data)
		}
	}
}

// saw holds that a round is released once.
func (d *disk) saw(value []byte) {
	r, err := decodeRecord(value)
	if err != nil {
		d.t.Errorf("a state is stored that cannot be read: %v", err)
		return
	}
	if d.released != nil {
		d.released(r)
	}
	if o := r.Open; o != nil && o.Noise != (hash{}) {
		a, err := wire.Decode[wire.Announcement](o.Announcement[ed25519.SignatureSize:])
		if err != nil {
			d.t.Error(err)
		}
		digest := hash(wire.Digest(a))
		if old, ok := d.named[digest]; ok && old != o.Noise {
			d.t.Errorf("round %d names another noise", r.Round+1)
		}
		d.named[digest] = o.Noise
	}
	have, ok := d.releases[r.Round]
	if model := hex.EncodeToString(r.Model[:]); ok && have != model {
		d.t.Errorf("round %d was released as %s and as %s", r.Round, have, model)
	} else if !ok {
		d.releases[r.Round] = model
	}
}

// memoryPromises is a disk's PromiseFile.
type memoryPromises struct {
	d     *disk
	crash *stop
}

func (m memoryPromises) Load() (map[hash]promise, error) {
	m.d.Lock()
	defer m.d.Unlock()
	return maps.Clone(m.d.promised), nil
}

func (m memoryPromises) Save(all map[hash]promise) error {
	return m.crash.do("save promises", func() error {
		m.d.Lock()
		defer m.d.Unlock()
		m.d.promised = maps.Clone(all)
		return nil
	})
}

// aggDisk is what survives a crash of the aggregator, and what was written to it.
type aggDisk struct {
	*memory.Disk
	mark     mark.Mark
	drawn    map[string][]byte
	partials map[string]bool // names of the partial sums that were stored
	changed  []string        // promises of records that were replaced by others
}

func newAggDisk() *aggDisk {
	d := &aggDisk{Disk: memory.NewDisk(), drawn: map[string][]byte{}, partials: map[string]bool{}}
	d.Wrote = d.wrote
	return d
}

func (d *aggDisk) store(crash *stop) *memory.Store { return &memory.Store{Disk: d.Disk, Do: crash.do} }

func (d *aggDisk) marks(crash *stop) mark.Keeper {
	return memory.Mark[mark.Mark]{At: &d.mark, Do: crash.do}
}

func (d *aggDisk) wrote(what memory.Kind, name string, old, data []byte) {
	switch {
	case what == memory.Object && strings.HasPrefix(name, "noise/"):
		d.drawn[name[len(name)-64:]] = data
	case what == memory.Object && strings.HasPrefix(name, "partial/"):
		d.partials[name] = true
	case what == memory.Value && old != nil:
		a, b := parseAgg(old), parseAgg(data)
		for what, p := range map[string][2]string{"key": {string(a.Key), string(b.Key)}, "set": {a.Summed, b.Summed}, "noise": {a.Noise, b.Noise}, "partial": {a.Partial, b.Partial}} {
			if p[0] != "" && p[0] != p[1] {
				d.changed = append(d.changed, what)
			}
		}
		if a.Sent != b.Sent {
			d.changed = append(d.changed, "who adds the noise")
		}
	}
}

// listed are the names of objects under a prefix, sorted.
func listed(objects map[string][]byte, prefix string) (names []string) {
	for name := range objects {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
