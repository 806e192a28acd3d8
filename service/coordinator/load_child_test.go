package coordinator

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"runtime"
	"strconv"
	"sync"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch/batchtest"
)

const loadChild = "RIFFLE_LOAD_COORDINATOR"

// loadMain is the process of the shuffler of BenchmarkLargeRound. It serves until its input ends.
func loadMain() {
	if err := load(os.Getenv(loadChild), os.Getenv("RIFFLE_REPORTS"), os.Getenv("RIFFLE_ENCODING")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func load(coordinator, reports, encoding string) error {
	public, err := hex.DecodeString(coordinator)
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(reports, 10, 64)
	if err != nil {
		return err
	}
	described, err := loadMechanism(encoding)
	if err != nil {
		return err
	}
	mech, err := mechanism.New(described)
	if err != nil {
		return err
	}
	contents := make([][]byte, 1000)
	for i := range contents {
		r := mech.NewReport()
		mech.Randomize(rng.Replay(1, uint64(i)), make([]float32, loadDim), r)
		if encoding == randomizer.Seed {
			continue
		}
		if contents[i], err = randomizer.AppendReport(nil, mech, r); err != nil {
			return err
		}
	}
	s := batchtest.New(n, 2)
	s.Fill = func(a wire.Announcement) ([][]byte, [][]byte) {
		parts, digest := make([][]byte, n), wire.Digest(a)
		s.PerChunk = max(1, int((64<<10)/a.ReportBytes))
		var wg sync.WaitGroup
		for w := range runtime.NumCPU() {
			wg.Go(func() {
				for i := w; i < len(parts); i += runtime.NumCPU() {
					content := contents[i%len(contents)]
					if content == nil { // a seed; any is a report
						content = make([]byte, 16)
						_, _ = rand.Read(content)
					}
					part, err := envelope.SealPart(a.Coordinator, envelope.Coordinator, digest, content)
					if err != nil {
						panic(err)
					}
					parts[i] = part
				}
			})
		}
		wg.Wait()
		return parts, nil
	}
	server := httptest.NewServer(s.Handler(public, false))
	fmt.Println(server.URL, hex.EncodeToString(s.Public))
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
