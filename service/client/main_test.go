package client_test

import (
	"fmt"
	"os"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/learn/external/externaltest"
)

// TestMain holds that no goroutine of this package outlives the tests.
func TestMain(m *testing.M) {
	externaltest.Main()
	code := m.Run()
	left := ""
	for range 100 {
		var b strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&b, 2); err != nil {
			panic(err)
		}
		left = ""
		for _, g := range strings.Split(b.String(), "\n\n") {
			if strings.Contains(g, "riffle/service/client.") && !strings.Contains(g, "client_test.TestMain") {
				left += g + "\n\n"
			}
		}
		if left == "" {
			os.Exit(code)
		}
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Println("goroutines are left:\n" + left)
	os.Exit(1)
}
