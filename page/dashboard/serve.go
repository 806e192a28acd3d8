package dashboard

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// Serve serves plain HTTP on a listener until ctx ends, and then returns nil with
// no goroutine left. It closes the listener.
func (d *dashboard) Serve(ctx context.Context, l net.Listener) error {
	s := &http.Server{Handler: d, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }, // so that streams end together with ctx
		ErrorLog:    log.New(io.Discard, "", 0)}                        // its lines contain clients' addresses
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("dashboard: %v", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if s.Shutdown(grace) != nil {
		_ = s.Close() // cut off connections that are left
	}
	<-done
	return nil
}
