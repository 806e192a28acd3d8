//go:build js && wasm

// Command wasm is the accountant for browsers. It defines the function riffleAnswer and waits for
// its calls.
//
//	riffleAnswer(question, fresh, step) → text
//
// The question and its answer are JSON texts, as in package ask, which keep all digits of numbers.
// With fresh the accountant forgets what it cached for earlier questions. step(method, done, of) is
// called before each method.
package main

import (
	"context"
	"encoding/json"
	"syscall/js"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/page/plan/ask"
)

func main() {
	accountant := new(account.Accountant)
	js.Global().Set("riffleAnswer", js.FuncOf(func(_ js.Value, args []js.Value) any {
		if args[1].Bool() {
			accountant = new(account.Accountant)
		}
		q, err := ask.Parse([]byte(args[0].String()))
		if err != nil {
			text, _ := json.Marshal(map[string]string{"error": err.Error()}) // strings always have a JSON form
			return string(text)
		}
		return string(q.Answer(context.Background(), accountant, func(method string, done, of int) { args[2].Invoke(method, done, of) }))
	}))
	select {}
}
