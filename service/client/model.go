package client

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"

	"github.com/riffle-dp/riffle/protocol/client"
)

// pieceBytes is the most that is asked for at a time: a larger model comes in pieces. A smaller
// one is asked for as a whole.
const pieceBytes = 4 << 20

// download is a model as far as it was received. Its memory grows with what arrives.
type download struct {
	digest [32]byte // that the announcement signs
	dim    int64

	theta []float32
	sum   hash.Hash // of what was received
	cut   []byte    // of a value that was received in part

	cached bool // whether some of it may be the cache's
	direct bool // whether the cache is asked no more
}

func newDownload(digest [32]byte, dim int64) *download {
	return &download{digest: digest, dim: dim, sum: sha256.New()}
}

func (d *download) total() int64 { return 4 * d.dim }

func (d *download) received() int64 { return 4*int64(len(d.theta)) + int64(len(d.cut)) }

func (d *download) restart() {
	d.theta, d.cut = nil, nil
	d.sum.Reset()
}

// errBeyond says that a server sends more than a model has.
var errBeyond = errors.New("more bytes than the model has")

// Write takes the next bytes.
func (d *download) Write(p []byte) (int, error) {
	if int64(len(p)) > d.total()-d.received() {
		return 0, errBeyond
	}
	n := len(p)
	d.sum.Write(p)
	if len(d.cut) > 0 {
		more := min(4-len(d.cut), len(p))
		d.cut = append(d.cut, p[:more]...)
		p = p[more:]
		if len(d.cut) < 4 {
			return n, nil
		}
		d.grow(1)
		d.add(d.cut)
		d.cut = d.cut[:0]
	}
	d.grow(len(p) / 4)
	for ; len(p) >= 4; p = p[4:] {
		d.add(p)
	}
	d.cut = append(d.cut, p...)
	return n, nil
}

func (d *download) add(b []byte) {
	d.theta = append(d.theta, math.Float32frombits(binary.LittleEndian.Uint32(b)))
}

// ahead is how many times the memory may be larger than what was received.
const ahead = 8

// grow makes room for n more values, and for the whole model as soon as ahead allows it.
func (d *download) grow(n int) {
	need := len(d.theta) + n
	if need <= cap(d.theta) {
		return
	}
	room := max(need, 2*cap(d.theta))
	if int64(need) >= d.dim/ahead {
		room = int(d.dim)
	}
	d.theta = append(make([]float32, 0, room), d.theta...)
}

// fetchModel receives the rest of a model. After an error that is no refusal another call goes
// on where this one ended. If bytes of the cache do not fit, the coordinators are asked for all.
func (f *Fleet) fetchModel(ctx context.Context, d *download) ([]float32, error) {
	path := fmt.Sprintf("/v1/models/%x", d.digest)
	for {
		f.cachedRest(ctx, path, d)
		for d.received() < d.total() {
			before := d.received()
			a, err := f.askCoordinators(ctx, &f.answered, func(base string) (answer, error) { return f.web.piece(ctx, base+path, d) })
			switch {
			case errors.Is(err, errBeyond):
				d.restart()
				return nil, client.Refuse(client.CauseModel, "more than the %d bytes that the task's have", d.total())
			case err != nil:
				return nil, err
			}
			if err := d.came(a, before); err != nil {
				return nil, err
			}
		}
		if [32]byte(d.sum.Sum(nil)) == d.digest {
			if !d.direct && d.cached {
				f.cache.good()
			}
			return d.theta, nil
		}
		cached := d.cached
		d.restart()
		wrong := client.Refuse(client.CauseModel, "its digest is not the announced one")
		if !cached {
			return nil, wrong
		}
		d.cached, d.direct = false, true
		f.doubt(ctx, "model", [32]byte{}, 0, wrong)
	}
}

// piece asks for the next bytes of a model, and adds to d what comes, also if the answer breaks
// off. A cache may ignore the range and answer with the whole model.
func (w *web) piece(ctx context.Context, url string, d *download) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	head := map[string]string{}
	from, to := d.received(), min(d.received()+pieceBytes, d.total())
	if d.total() > pieceBytes {
		head["Range"] = fmt.Sprintf("bytes=%d-%d", from, to-1)
	}
	resp, err := w.send(ctx, methodGet, url, nil, head)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	a := answer{status: resp.Status}
	switch resp.Status {
	case statusOK:
		d.restart()
		to = d.total()
	case statusPartialContent:
		if got, want := resp.Header("Content-Range"), fmt.Sprintf("bytes %d-%d/%d", from, to-1, d.total()); got != want {
			return answer{}, client.Refuse(client.CauseModel, "the server sends %.60q of it, asked for was %s", got, want)
		}
	default:
		a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
		if err != nil {
			return answer{}, fmt.Errorf("client: %w", err)
		}
		return a, nil
	}
	rest := to - d.received()
	n, err := io.Copy(d, io.LimitReader(resp.Body, rest+1))
	switch {
	case errors.Is(err, errBeyond) || n > rest:
		return answer{}, errBeyond
	case err != nil:
		return answer{}, fmt.Errorf("client: %w", err)
	case a.status == statusPartialContent && n > 0 && n < rest:
		// An error, so that the client pauses: else a server could make it ask for each byte.
		return answer{}, fmt.Errorf("client: %d bytes of a model, asked for were %d", n, rest)
	}
	return a, nil
}
