package client_test

import (
	"os"
	"testing"

	"github.com/riffle-dp/riffle/learn/external/externaltest"
)

func TestMain(m *testing.M) {
	externaltest.Main()
	os.Exit(m.Run())
}
