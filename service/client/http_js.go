package client

import "errors"

// Certificates and connections are a browser's own.
type (
	certificates struct{}
	dial         struct{}
)

func newTransport(JoinConfig) (Transport, error) {
	return nil, errors.New("client: a transport is required: in a browser fetch, which web/wasm has")
}
