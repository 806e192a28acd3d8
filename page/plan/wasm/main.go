//go:build js && wasm

// Command wasm is the accountant for a web page: it defines the global function riffleAnswer
// and waits to be called.
//
//	riffleAnswer(query, which, fresh, step) → text
//
// The query is the query part of a document of riffle eps --json, as JSON text. The answer is
// such a document, or {"error": "…"}. With fresh the accountant forgets what it cached for
// earlier questions. step(method, done, of) is called before each method. Numbers cross as
// JSON text, which keeps all their digits.
package main

import (
	"context"
	"encoding/json"
	"syscall/js"

	"github.com/riffle-dp/riffle/account"
)

func main() {
	accountant := new(account.Accountant)
	js.Global().Set("riffleAnswer", js.FuncOf(func(_ js.Value, args []js.Value) any {
		if args[2].Bool() {
			accountant = new(account.Accountant)
		}
		text, err := answer(accountant, args[0].String(), args[1].String(), args[3])
		if err != nil {
			text, _ = json.Marshal(map[string]string{"error": err.Error()}) // strings always have a JSON form
		}
		return string(text)
	}))
	select {}
}

func answer(a *account.Accountant, query, which string, step js.Value) ([]byte, error) {
	d, err := account.ParseDocumentQuery([]byte(query))
	if err != nil {
		return nil, err
	}
	var each func(method string, done, of int)
	if step.Type() == js.TypeFunction {
		each = func(method string, done, of int) { step.Invoke(method, done, of) }
	}
	r, err := a.Ask(context.Background(), d, which, each)
	if err != nil {
		return nil, err
	}
	return json.Marshal(r.Document())
}
