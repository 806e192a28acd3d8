package operate

import (
	"os"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/learn/external/externaltest"
)

func TestMain(m *testing.M) {
	externaltest.Main()
	os.Exit(m.Run())
}

// embedded skips a test of roles or stores unless all tests run.
func embedded(t testing.TB) {
	t.Helper()
	longtest.Only(t, "it opens embedded stores, whose servers no bubble can hold")
}
