package client

import (
	"context"
	"io"
)

// Transport carries requests to the servers and their answers: HTTP over TLS that checks the server's
// certificate. It adds nothing to a request that tells clients apart, such as cookies. It keeps no
// answers and follows no redirects. It may be used by many goroutines.
type Transport interface {
	// Do sends a request, and returns when the head of the answer is there. When ctx ends, the
	// request and the reading of its answer end with an error.
	Do(ctx context.Context, r Request) (*Response, error)
	// Close gives back what the transport holds. No request may be under way.
	Close()
}

// Request is an HTTP request.
type Request struct {
	Method, URL string
	Header      map[string]string
	Body        []byte
}

// Response is the answer to a Request. The caller closes its body.
type Response struct {
	Status int
	Header func(name string) string // the first value; empty if there is none
	Body   io.ReadCloser
}

// Methods and status codes of HTTP. They are not net/http's, which would make programs for browsers
// much larger.
const (
	methodGet  = "GET"
	methodPost = "POST"

	statusOK              = 200
	statusNoContent       = 204
	statusPartialContent  = 206
	statusNotModified     = 304
	statusUnauthorized    = 401
	statusNotFound        = 404
	statusGone            = 410
	statusTooManyRequests = 429
)
