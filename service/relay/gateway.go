package relay

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/bits"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"github.com/riffle-dp/riffle/protocol/bhttp"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// Path is where a relay takes sealed requests, and where it sends them.
const Path = "/v1/relay"

const (
	// answerSize is the size that answers are padded to, and the unit of larger ones: powers of two
	// times it.
	answerSize = 1 << 12
	// maxAnswer bounds an answer before it is sealed.
	maxAnswer = 1 << 16
	// answerTime is the longest that a request may take behind the gateway.
	answerTime = 30 * time.Second
	// atOnce is the number of requests of the largest size that a gateway holds at a time. All of
	// them come from one relay, so they have a bound of their own: callers with an address do not
	// share it. It counts bytes and not requests: one for an invented round waits for a look at the
	// store, and others must not wait for it.
	atOnce = 64
	// leastRoom is the least number of bytes that a gateway holds, and roomUnit what they are counted in.
	leastRoom = 64 << 20
	roomUnit  = 4 << 10
)

// Framing is what a report grows by on its way to the gateway at most: the request around it, its
// padding, and its seal.
const Framing = 8 << 10

// passed are the requests that may come through a relay. Their headers are not read.
var passed = map[string]bool{"/v1/session": true, "/v1/report": true, "/v1/ask": true}

// gateway opens requests that came through a relay.
type gateway struct {
	keys *envelope.Keyring
	next http.Handler
	most int64

	room    chan struct{} // has an element for each roomUnit bytes that are held
	turn    chan struct{} // filled by who takes room
	opening chan struct{} // has an element for each seal that is being opened
}

// Gateway answers requests that are sealed to keys with what next answers to those inside, sealed to
// their senders. It knows nothing of a sender but what the request says. most is the size of the
// largest body inside. The caller lets in only the relay.
func Gateway(keys *envelope.Keyring, next http.Handler, most int64) http.Handler {
	room := max(leastRoom, atOnce*(most+Framing)) / roomUnit
	return &gateway{keys: keys, next: next, most: most, room: make(chan struct{}, room), turn: make(chan struct{}, 1),
		opening: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// take waits for room for a body of size bytes, or one of the largest if size is below 0. The caller
// calls give afterwards.
func (g *gateway) take(ctx context.Context, size int64) (give func(), ok bool) {
	if size < 0 {
		size = g.most + Framing
	}
	select {
	case g.turn <- struct{}{}: // one at a time, so that two do not wait for each other's
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return nil, false
	}
	var taken int64
	give = func() {
		for ; taken > 0; taken-- {
			<-g.room
		}
	}
	for want := size/roomUnit + 1; taken < want && taken < int64(cap(g.room)); taken++ {
		select {
		case g.room <- struct{}{}:
		case <-ctx.Done():
			give()
			return nil, false
		}
	}
	return give, true
}

// open opens a sealed request. As many are opened at a time as there are processors, so that callers
// with an address never wait for more than that.
func (g *gateway) open(ctx context.Context, body []byte) ([]byte, func([]byte) ([]byte, error), error) {
	select {
	case g.opening <- struct{}{}:
		defer func() { <-g.opening }()
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	return g.keys.OpenRequest(body)
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	give, ok := g.take(r.Context(), min(r.ContentLength, g.most+Framing)) // before the body is read
	if !ok {
		endpoint.Refuse(w, wire.Unavailable, "")
		return
	}
	defer give()
	body, ok := endpoint.ReadBody(w, r, g.most+Framing)
	if !ok {
		return
	}
	inside, seal, err := g.open(r.Context(), body)
	if errors.Is(err, envelope.ErrKey) || errors.Is(err, envelope.ErrOpen) {
		endpoint.Refuse(w, wire.WrongKey, "")
		return
	}
	if r.Context().Err() != nil {
		endpoint.Refuse(w, wire.Unavailable, "")
		return
	}
	if err != nil {
		endpoint.Refuse(w, wire.Malformed, "no sealed request")
		return
	}
	answer := g.answer(r.Context(), inside)
	size := answerSize << bits.Len(uint((len(answer.Body)+answerSize/4)/answerSize))
	sealed, err := seal(answer.Append(nil, size))
	if err != nil {
		endpoint.Refuse(w, wire.Unavailable, "")
		return
	}
	w.Header().Set("Content-Type", "message/ohttp-res")
	w.Header().Set("Content-Length", strconv.Itoa(len(sealed)))
	_, _ = w.Write(sealed) // fails if the relay has gone
}

// answer asks next. The context is a new one: what next learns of the relay's connection would be
// wrong of the client.
func (g *gateway) answer(of context.Context, inside []byte) *bhttp.Response {
	out := &recorder{header: http.Header{}}
	m, err := bhttp.DecodeRequest(inside)
	switch {
	case err != nil || int64(len(m.Body)) > g.most:
		endpoint.Refuse(out, wire.Malformed, "no request that can be read")
	case m.Method != http.MethodPost || !passed[m.Path]:
		endpoint.Refuse(out, wire.UnknownRound, "no such request through a relay")
	default:
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		defer cancel()
		defer context.AfterFunc(of, cancel)()
		q, err := http.NewRequestWithContext(ctx, m.Method, m.Path, bytes.NewReader(m.Body))
		if err != nil {
			endpoint.Refuse(out, wire.Malformed, "no request that can be made")
			break
		}
		q.RequestURI = m.Path
		g.next.ServeHTTP(out, q)
	}
	return out.response()
}

// recorder keeps an answer.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
	long   bool
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	if r.body.Len()+len(b) > maxAnswer {
		r.long = true
		return 0, io.ErrShortWrite
	}
	return r.body.Write(b)
}

func (r *recorder) response() *bhttp.Response {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	if r.long || r.status < 200 {
		return &bhttp.Response{Status: http.StatusServiceUnavailable}
	}
	return &bhttp.Response{Status: r.status, Body: r.body.Bytes()}
}
