//go:build js && wasm

package main

import (
	"errors"
	"io/fs"
	"syscall/js"

	"github.com/riffle-dp/riffle/protocol/client"
)

// promise runs f in a goroutine, and returns a promise of what it returns.
func promise(f func() (any, error)) js.Value {
	var start js.Func
	start = js.FuncOf(func(_ js.Value, args []js.Value) any {
		resolve, reject := args[0], args[1]
		go func() {
			defer start.Release()
			if v, err := f(); err != nil {
				reject.Invoke(errorOf(err))
			} else {
				resolve.Invoke(v)
			}
		}()
		return nil
	})
	return js.Global().Get("Promise").New(start)
}

// errorOf makes an Error; of a refusal it has the reason.
func errorOf(err error) js.Value {
	e := js.Global().Get("Error").New(err.Error())
	if refused := (*client.Refused)(nil); errors.As(err, &refused) {
		e.Set("reason", string(refused.Cause))
	}
	if why := (refusal{}); errors.As(err, &why) {
		e.Set("reason", why.reason)
	}
	if f := (failure{}); errors.As(err, &f) && f.name == "LockedError" {
		e.Set("reason", "locked")
	}
	return e
}

// refusal is an error that a page may want to tell from others.
type refusal struct{ reason, message string }

func (r refusal) Error() string { return r.message }

// failure is what a promise was rejected with.
type failure struct{ name, message string }

func (f failure) Error() string { return f.message }

// Is says that a file is not there.
func (f failure) Is(target error) bool { return f.name == "NotFoundError" && target == fs.ErrNotExist }

// await waits for a promise.
func await(p js.Value) (v js.Value, err error) {
	done := make(chan struct{})
	kept := js.FuncOf(func(_ js.Value, args []js.Value) any {
		if len(args) > 0 {
			v = args[0]
		}
		close(done)
		return nil
	})
	defer kept.Release()
	broken := js.FuncOf(func(_ js.Value, args []js.Value) any {
		f := failure{"Error", "a promise was rejected"}
		if len(args) > 0 && args[0].Type() == js.TypeObject {
			f = failure{args[0].Get("name").String(), args[0].Get("message").String()}
		}
		err = f
		close(done)
		return nil
	})
	defer broken.Release()
	p.Call("then", kept, broken)
	<-done
	return v, err
}

// bytesOf copies a Uint8Array.
func bytesOf(v js.Value) []byte {
	b := make([]byte, v.Length())
	js.CopyBytesToGo(b, v)
	return b
}

// arrayOf copies bytes to a Uint8Array.
func arrayOf(b []byte) js.Value {
	v := js.Global().Get("Uint8Array").New(len(b))
	js.CopyBytesToJS(v, b)
	return v
}
