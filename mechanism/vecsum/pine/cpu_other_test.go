//go:build !unix

package pine

import "testing"

func loop(b *testing.B, f func() error) {
	for b.Loop() {
		if err := f(); err != nil {
			b.Fatal(err)
		}
	}
}
