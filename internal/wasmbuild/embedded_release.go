//go:build release

package wasmbuild

import "embed"

// go generate ./web makes these files, which are not in git.
//
//go:embed accountant.wasm.gz client.wasm.gz
var embedded embed.FS
