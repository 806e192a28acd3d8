package client

import "errors"

// certificates are a browser's own.
type certificates struct{}

func newTransport(JoinConfig) (Transport, error) {
	return nil, errors.New("client: a transport is required: in a browser fetch, which web/wasm has")
}
