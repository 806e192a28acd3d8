// Command generate makes the WebAssembly accountant of package plan:
//
//	go run ./page/plan/generate           # builds it and records its sources
//	go run ./page/plan/generate -check    # fails if the committed program does not match the sources
//	go run ./page/plan/generate -rebuild  # builds it again and fails if a byte differs
//
// It runs in the module's root or in page/plan.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/riffle-dp/riffle/internal/wasmbuild"
)

var accountant = wasmbuild.Program{Package: "./page/plan/wasm", Packed: "page/plan/accountant.wasm.gz", Record: "page/plan/accountant.sum", Command: "go generate ./page/plan"}

func main() {
	check := flag.Bool("check", false, "compare the recorded sources with those there are")
	rebuild := flag.Bool("rebuild", false, "build again and compare, if this is the recorded release of Go")
	flag.Parse()
	if err := run(*check, *rebuild); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(check, rebuild bool) (err error) {
	if err := wasmbuild.Root(); err != nil {
		return err
	}
	var said string
	switch {
	case rebuild:
		said, err = accountant.Rebuild()
	case check:
		return accountant.Check()
	default:
		said, err = accountant.Generate()
	}
	if err == nil {
		fmt.Println(said)
	}
	return err
}
