// Package wasmexec carries the script that Go's WebAssembly programs need to run in a
// browser, copied from the distribution of the Go release named in README.md. It works with
// programs of that release only.
package wasmexec

import _ "embed"

// Files of the release. Nobody changes them.
var (
	// Script defines the global Go.
	//
	//go:embed wasm_exec.js
	Script string
	// Licence must accompany every copy of Script.
	//
	//go:embed LICENSE
	Licence string
)
