package external

import (
	"os"
	"testing"

	"github.com/riffle-dp/riffle/learn/external/externaltest"
)

const programDim, programClients = externaltest.Dim, externaltest.Clients

var program, gradientOf, answer, listen = externaltest.Program, externaltest.Gradient, externaltest.Answer, externaltest.Listen

func TestMain(m *testing.M) {
	externaltest.Main()
	os.Exit(m.Run())
}
