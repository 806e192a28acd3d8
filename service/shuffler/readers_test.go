package shuffler

import (
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Workers who read ranges of a batch at the same time do not have it read again from its start for
// every chunk: as many chunks are read as one caller would have read, but for a few.
func TestReadersOfRanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 2048
		chunk := make([]byte, 64<<10)
		for _, workers := range []int64{1, 2, 8, 16} {
			s, reads := &Service{readers: map[string]*reader{}}, int64(0)
			find := func() ([]stretch, error) { return []stretch{{"s", "parts.*", n}}, nil }
			read := func(s stretch, from uint64) iter.Seq2[blob, error] {
				return func(yield func(blob, error) bool) {
					for p := max(from, 1); p <= n; p++ {
						name := fmt.Sprintf("parts.%d", p-1)
						if s.filter != name && !strings.HasSuffix(s.filter, "*") {
							continue
						}
						if reads++; !yield(blob{p, name, chunk}, nil) {
							return
						}
					}
				}
			}
			for i := range int64(n) {
				round, in := i/(64*workers), i%(64*workers)
				index := round*64*workers + in%workers*64 + in/workers
				if c, err := s.reader("s", index).chunk(index, find, read); err != nil || len(c) != 64<<10 {
					t.Fatal(index, len(c), err)
				}
				time.Sleep(time.Microsecond)
			}
			most := int64(2 * n)
			if workers > mostReaders {
				most = 10 * n
			}
			if reads > most {
				t.Errorf("%d workers: %d chunks were read of %d", workers, reads, n)
			}
		}
	})
}
