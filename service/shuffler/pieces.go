package shuffler

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/riffle-dp/riffle/service/store"
)

// A blob is a run of bytes of any size in a stream, whose messages hold at most
// store.MaxBlock bytes. It is cut into pieces, each sealed under the round's key with its
// kind and suffix as context. It exists once all its pieces are stored.
//
// A piece begins with a header: the blob's id (16 bytes), the number of pieces (u32), and
// the number of this one (u32).
const pieceHeader = 16 + 4 + 4

// vault seals and opens the blobs of one round.
type vault struct {
	sealer *sealer
	digest [32]byte // digest of the announcement
	order  [16]byte // key of the orders of the parts of reports of several messages
}

func newVault(key []byte, digest [32]byte) (*vault, error) {
	s, err := newSealer(key)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("riffle/1 order of parts\x00"))
	mac.Write(digest[:])
	return &vault{s, digest, [16]byte(mac.Sum(nil))}, nil
}

// openVault returns the vault of a round, with its key from the store.
func (s *Service) openVault(ctx context.Context, digest [32]byte) (*vault, error) {
	key, err := s.sealKey(ctx, encodeName(digest[:]))
	if err != nil {
		return nil, err
	}
	return newVault(key, digest)
}

func (v *vault) context(kind, suffix string) []byte {
	return append([]byte(kind+"/"+suffix+"/"), v.digest[:]...)
}

// cut yields a blob's sealed pieces, with their message ids.
func (v *vault) cut(kind, suffix string, blob []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		pieces := max(1, (len(blob)+store.MaxBlock-1)/store.MaxBlock)
		plain := make([]byte, pieceHeader, pieceHeader+min(len(blob), store.MaxBlock))
		rand.Read(plain[:16]) // never fails
		binary.LittleEndian.PutUint32(plain[16:], uint32(pieces))
		for i := range pieces {
			binary.LittleEndian.PutUint32(plain[20:], uint32(i))
			plain = append(plain[:pieceHeader], blob[i*store.MaxBlock:min(len(blob), (i+1)*store.MaxBlock)]...)
			sealed, err := v.sealer.seal(make([]byte, 0, len(plain)+sealOverhead), plain, v.context(kind, suffix))
			if err != nil {
				panic(err) // fails only after 2^32 blocks
			}
			if !yield(base64.RawURLEncoding.EncodeToString(plain[:pieceHeader]), sealed) {
				return
			}
		}
	}
}

// blobs yields the blobs of a stream whose suffixes match the filter ("": all).
func (v *vault) blobs(ctx context.Context, s storage, stream, kind, filter string) iter.Seq2[[]byte, error] {
	return contents(v.blobsFrom(ctx, s, stream, kind, filter, 0))
}

// reported yields the blocks of a round's reports up to the cut: those of a bucket, or all if
// bucket is "".
func (v *vault) reported(ctx context.Context, s storage, name, bucket string, cut uint64) iter.Seq2[[]byte, error] {
	filters := []string{bucket}
	if bucket != "" {
		filters = append(filters, suffixCut)
	}
	return contents(v.decode("in", s.ReadTo(ctx, streamIn(name), cut, filters...)))
}

func contents(blobs iter.Seq2[blob, error]) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for b, err := range blobs {
			if !yield(b.data, err) {
				return
			}
		}
	}
}

// blob is a whole blob that was read from a stream.
type blob struct {
	place  uint64 // place in the stream where it ends
	suffix string
	data   []byte
}

// blobsFrom yields the blobs that begin at place from or after it.
func (v *vault) blobsFrom(ctx context.Context, s storage, stream, kind, filter string, from uint64) iter.Seq2[blob, error] {
	return v.decode(kind, s.Read(ctx, stream, filter, from))
}

// decode opens messages and yields the blobs that are whole. It skips one that is not, for its
// writer was never told that it is stored. A blob that was stored twice, after an outage, is yielded
// once, but in a stream of reports, where that would take memory and copies are dropped anyway.
func (v *vault) decode(kind string, messages iter.Seq2[store.Message, error]) iter.Seq2[blob, error] {
	return func(yield func(blob, error) bool) {
		type partial struct {
			pieces [][]byte
			have   int
		}
		open, once := map[[16]byte]*partial{}, map[[16]byte]bool{}
		for m, err := range messages {
			if err != nil {
				yield(blob{}, err)
				return
			}
			plain, err := v.sealer.open(make([]byte, 0, len(m.Data)), m.Data, v.context(kind, m.Suffix))
			if err != nil || len(plain) < pieceHeader {
				yield(blob{}, fmt.Errorf("shuffler: message %d of %s does not open", m.Seq, kind))
				return
			}
			id := [16]byte(plain[:16])
			n, i := binary.LittleEndian.Uint32(plain[16:]), binary.LittleEndian.Uint32(plain[20:])
			if i >= n || n > 1<<16 {
				yield(blob{}, fmt.Errorf("shuffler: message %d of %s is piece %d of %d", m.Seq, kind, i, n))
				return
			}
			if n == 1 {
				if once[id] {
					continue
				}
				if kind != "in" {
					once[id] = true
				}
				if !yield(blob{m.Seq, m.Suffix, plain[pieceHeader:]}, nil) {
					return
				}
				continue
			}
			p := open[id]
			if p == nil {
				p = &partial{pieces: make([][]byte, n)}
				open[id] = p
			}
			if p.pieces[i] != nil {
				continue // stored twice
			}
			p.pieces[i], p.have = plain[pieceHeader:], p.have+1
			if p.have < len(p.pieces) {
				continue
			}
			var whole []byte
			for _, b := range p.pieces {
				whole = append(whole, b...)
			}
			delete(open, id)
			if !yield(blob{m.Seq, m.Suffix, whole}, nil) {
				return
			}
		}
	}
}
