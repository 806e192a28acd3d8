//go:build !release

package wasmbuild

import "embed"

var embedded embed.FS // has no files
