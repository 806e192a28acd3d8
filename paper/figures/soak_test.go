//go:build soak

package figures

import (
	"context"
	"testing"
)

// Every point of every figure of bounds, about a minute of two processors.
func TestAllSweepsAreInOrder(t *testing.T) {
	d := &desk{}
	for _, f := range all() {
		data, err := f.draw(context.Background(), d)
		if err != nil {
			t.Fatal(err)
		}
		if data.find(upper) != nil {
			checkOrder(t, f.Name, data)
		}
	}
}
