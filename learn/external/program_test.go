package external

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"net"
	"os"
	"testing"

	"github.com/riffle-dp/riffle/learn/external/externaltest"
)

const programDim, programClients = externaltest.Dim, externaltest.Clients

var program, gradientOf = externaltest.Program, externaltest.Gradient

func TestMain(m *testing.M) {
	externaltest.Main()
	os.Exit(m.Run())
}

// answer encodes a document with at most one tensor.
func answer(meta map[string]string, name, dtype string, shape []int, data []byte) []byte {
	header := map[string]any{"__metadata__": meta}
	if name != "" {
		header[name] = map[string]any{"dtype": dtype, "shape": shape, "data_offsets": []int{0, len(data)}}
	}
	h, err := json.Marshal(header)
	if err != nil {
		panic(err)
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(8+len(h)+len(data)))
	out = binary.LittleEndian.AppendUint64(out, uint64(len(h)))
	return append(append(out, h...), data...)
}

func floats(v []float32) (b []byte) {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// listen serves a mode on a socket, and returns unix:PATH.
func listen(t *testing.T, mode string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "riffle") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()
		_ = os.RemoveAll(dir)
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				externaltest.Serve(mode, conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return "unix:" + dir + "/s"
}
