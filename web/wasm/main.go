//go:build js && wasm

// Command wasm is the client for a browser: service/client with fetch in place of HTTP, and files in
// IndexedDB. web/package/worker.js starts it, in a Worker. It defines the global object riffle:
//
//	riffle.newCredential(store)                  → promise of the public line of a new client
//	riffle.publicLine(store)                     → promise of the public line; null without a client
//	riffle.join(options, store, event, gradient) → promise of {stop(), done}, where done is a promise
//
// The store has the methods of web/package/store.js. The options are JSON text: see options. event is
// called with JSON text: see event. gradient(task, round, theta, dim) returns a promise of a Float32Array,
// or is null.
package main

import (
	"context"
	"errors"
	"syscall/js"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

func main() {
	js.Global().Set("riffle", map[string]any{
		"newCredential": js.FuncOf(func(_ js.Value, args []js.Value) any {
			return promise(func() (any, error) { return newCredential(database{args[0]}) })
		}),
		"publicLine": js.FuncOf(func(_ js.Value, args []js.Value) any {
			return promise(func() (any, error) {
				c, err := stored(database{args[0]})
				if c == nil || err != nil {
					return nil, err
				}
				return publicLine(c), nil
			})
		}),
		"join": js.FuncOf(func(_ js.Value, args []js.Value) any {
			return promise(func() (any, error) { return join(args[0].String(), database{args[1]}, args[2], args[3]) })
		}),
	})
	select {}
}

// join begins to take part. It returns an object with a function that ends it, and a promise of the
// end.
func join(text string, store database, tell, gradient js.Value) (any, error) {
	o, err := parseOptions(text)
	if err != nil {
		return nil, err
	}
	c, err := o.config()
	if err != nil {
		return nil, err
	}
	c.Store, c.Transport = store, fetch{}
	events := &teller{say: tell, policy: c.Policy}
	source, err := o.source(gradient, events)
	if err != nil {
		return nil, err
	}
	credential, err := o.credential(store)
	if err != nil {
		return nil, err
	}
	events.id = wire.ClientID(credential.Public())
	c.Watch, c.Announced = events.notice, events.announced
	fleet, err := client.NewFleet(c, []client.Member{{Credential: credential, Source: source}})
	if err != nil {
		return nil, err
	}
	events.begin(fleet)
	ctx, stop := context.WithCancel(context.Background())
	done := promise(func() (any, error) {
		defer stop()
		err := errors.Join(fleet.Run(ctx), events.close(), fleet.Close())
		return nil, err
	})
	end := js.FuncOf(func(js.Value, []js.Value) any { stop(); return nil })
	return map[string]any{"stop": end, "done": done}, nil
}
