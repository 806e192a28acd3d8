package operate

import (
	"os"
	"testing"
	"time"

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

// until tries f until it returns no error. What stores on a disk, processes and browsers have done shows
// in no event.
func until(t testing.TB, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal("never: ", err)
}
