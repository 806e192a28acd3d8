// Package wasmexec carries the script that Go's WebAssembly programs need to run in a
// browser, copied from the distribution of the Go release named in README.md. It works with
// programs of that release only.
package wasmexec

import _ "embed"

var (
	//go:embed wasm_exec.js
	script string
	//go:embed LICENSE
	licence string
)

// Script returns the script, which defines the global Go.
func Script() string { return script }

// Licence returns the text that must accompany every copy of Script.
func Licence() string { return licence }
