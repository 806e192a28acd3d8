//go:build js && wasm

package main

import (
	"context"
	"io"
	"syscall/js"

	"github.com/riffle-dp/riffle/service/client"
)

// fetch is the browser's way to make requests. The browser adds the page's origin and no cookies, and
// checks certificates by its own roots.
type fetch struct{}

// Close has nothing to give back: connections are the browser's.
func (fetch) Close() {}

// Do sends a request.
func (fetch) Do(ctx context.Context, r client.Request) (*client.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	head := map[string]any{}
	for name, value := range r.Header {
		head[name] = value
	}
	control := js.Global().Get("AbortController").New()
	init := map[string]any{"method": r.Method, "headers": head, "signal": control.Get("signal"), "mode": "cors",
		"credentials": "omit", "cache": "no-store", "redirect": "error", "referrerPolicy": "no-referrer"}
	if len(r.Body) > 0 {
		init["body"] = arrayOf(r.Body)
	}
	stop := context.AfterFunc(ctx, func() { control.Call("abort") })
	resp, err := await(js.Global().Call("fetch", r.URL, init))
	if err != nil {
		stop()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	b := &body{ctx: ctx, control: control, stop: stop}
	if stream := resp.Get("body"); stream.Truthy() {
		b.reader = stream.Call("getReader")
	}
	headers := resp.Get("headers")
	return &client.Response{Status: resp.Get("status").Int(), Body: b, Header: func(name string) string {
		if v := headers.Call("get", name); v.Type() == js.TypeString {
			return v.String()
		}
		return ""
	}}, nil
}

// body reads an answer piece by piece.
type body struct {
	ctx     context.Context
	control js.Value
	reader  js.Value // undefined: there is nothing to read
	rest    []byte
	ended   error
	stop    func() bool
}

// Read waits for the next piece.
func (b *body) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.reader.IsUndefined() && b.ended == nil {
			b.ended = io.EOF
		}
		if b.ended != nil {
			return 0, b.ended
		}
		v, err := await(b.reader.Call("read"))
		switch {
		case b.ctx.Err() != nil:
			b.ended = b.ctx.Err()
		case err != nil:
			b.ended = err
		case v.Get("done").Bool():
			b.ended = io.EOF
		default:
			b.rest = bytesOf(v.Get("value"))
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Close gives up what was not read.
func (b *body) Close() error {
	b.stop()
	if b.ended != io.EOF {
		b.control.Call("abort")
	}
	b.ended = io.ErrClosedPipe
	return nil
}
