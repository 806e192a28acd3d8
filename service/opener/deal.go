package opener

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Queue is the name of the store's queue of openings.
const Queue = "opening"

// MostWorkers bounds the workers' keys, so that an opening is one message of the queue.
const MostWorkers = 16

// ErrNotDealt is wrapped if an opening is not the coordinator's, or not for this worker.
var ErrNotDealt = errors.New("opener: not an opening for this worker")

// Dealer is the coordinator's side of openings.
type Dealer struct {
	Signer  ed25519.PrivateKey // the coordinator's key
	Keyring *envelope.Keyring
	Workers []wire.Key
}

// Deal signs the opening of a range, and seals to each worker what it takes: the one private key that the
// round's messages are sealed to, and the range's ticket. key names that key.
func (d *Dealer) Deal(key [8]byte, o wire.Opening) ([]byte, error) {
	private, err := d.Keyring.Key(key)
	if err != nil {
		return nil, err
	}
	text, err := private.MarshalText()
	if err != nil {
		return nil, err
	}
	place := o.Place()
	ticket := d.ticket(place)
	content := append(ticket[:], text...)
	defer func() { clear(content); clear(text) }()
	for _, w := range d.Workers {
		sealed, err := envelope.SealPart(w, envelope.Worker, place, content)
		if err != nil {
			return nil, err
		}
		o.Keys = append(o.Keys, sealed)
	}
	return wire.Sign(d.Signer, wire.LabelOpening, wire.Encode(o)), nil
}

// ticket shows that a tally comes from a worker that could read the opening of that place. It is the same
// after a restart, so that tallies that have come before count.
func (d *Dealer) ticket(place [32]byte) (t [32]byte) {
	h := hmac.New(sha256.New, d.Signer.Seed())
	h.Write([]byte("riffle/1 ticket of an opening\x00"))
	h.Write(place[:])
	h.Sum(t[:0])
	return t
}

// Read opens the sealed tally of a range. It is not checked against the batch: that is for
// coordinator.Total.
func (d *Dealer) Read(o *wire.Opening, sealed []byte) (*wire.Opened, error) {
	of := wire.Opened{Announcement: o.Announcement, From: o.From, To: o.To()}
	content, err := d.Keyring.OpenPart(envelope.Coordinator, of.Place(), sealed)
	if err != nil {
		return nil, err
	}
	p, err := wire.Decode[wire.Opened](content)
	if err != nil {
		return nil, err
	}
	ticket := d.ticket(o.Place())
	switch {
	case p.Announcement != of.Announcement || p.From != of.From || p.To != of.To:
		return nil, fmt.Errorf("opener: a tally of chunks %d to %d of round %x", p.From, p.To, p.Announcement[:8])
	case !hmac.Equal(p.Ticket[:], ticket[:]):
		return nil, errors.New("opener: a tally without the ticket of its range: none of the workers has made it")
	}
	return &p, nil
}

// dealt is an opening that a worker can read.
type dealt struct {
	wire.Opening
	task    wire.Task
	key     *envelope.PrivateKey
	keyring *envelope.Keyring // of key alone
	ticket  [32]byte
}

// receive checks an opening, and reads what is sealed to one of a worker's keys.
func receive(signer ed25519.PublicKey, own *envelope.Keyring, signed []byte) (*dealt, error) {
	message, err := wire.Verify(signer, wire.LabelOpening, signed)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotDealt, err)
	}
	var d dealt
	if d.Opening, err = wire.Decode[wire.Opening](message); err != nil {
		return nil, err
	}
	if d.task, err = wire.Decode[wire.Task](d.Task); err != nil {
		return nil, err
	}
	var content []byte
	err = fmt.Errorf("%w: its key is not in the coordinator's worker-keys", ErrNotDealt)
	for _, sealed := range d.Keys {
		if content, err = own.OpenPart(envelope.Worker, d.Place(), sealed); err == nil {
			break
		}
		err = fmt.Errorf("%w: %w: its key is not in the coordinator's worker-keys", ErrNotDealt, err)
	}
	if err != nil {
		return nil, err
	}
	defer clear(content)
	if len(content) < len(d.ticket) {
		return nil, fmt.Errorf("%w: %d bytes sealed to a worker", wire.ErrMalformed, len(content))
	}
	copy(d.ticket[:], content)
	if d.key, err = envelope.ParseKey(content[len(d.ticket):]); err != nil {
		return nil, err
	}
	d.keyring, err = envelope.NewKeyring(d.key)
	return &d, err
}

// CheckWorkers returns an error unless openings can be sealed to these keys, each listed once.
func CheckWorkers(keys []wire.Key) error {
	if len(keys) == 0 || len(keys) > MostWorkers {
		return fmt.Errorf("opener: %d workers' keys, want 1 to %d", len(keys), MostWorkers)
	}
	for i, k := range keys {
		id := k.ID()
		if slices.ContainsFunc(keys[:i], func(o wire.Key) bool { return o.ID() == id }) {
			return fmt.Errorf("opener: the worker's key %x is listed twice", id)
		}
		if _, err := envelope.SealPart(k, envelope.Worker, [32]byte{}, nil); err != nil {
			return fmt.Errorf("opener: the worker's key %x: %w", id, err)
		}
	}
	return nil
}
