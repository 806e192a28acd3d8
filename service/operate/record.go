package operate

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// recorder keeps what a coordinator opened, in a file for each round: the reports in the
// batch's order, or the counts of a vector sum. Its files are what the coordinator sees, and
// have the privacy that the ledger was charged for. If reports are seeds, a file starts with the
// digest of the round's announcement, without which they mean nothing.
type recorder struct {
	dir       string
	mechanism randomizer.Mechanism // the shape of reports, the same in all rounds
	keyed     bool                 // whether reports are seeds

	file  *os.File
	out   *bufio.Writer
	round int64
	place int64 // place of the last report; −1: none
	bytes []byte
}

func newRecorder(dir string, w wire.Task, m randomizer.Mechanism) (*recorder, error) {
	id := wire.Digest(w)
	dir = filepath.Join(dir, hex.EncodeToString(id[:]))
	if err := durable.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("operate: %w", err)
	}
	_, keyed := m.(randomizer.Keyed)
	return &recorder{dir: dir, mechanism: randomizer.ForRound(m, [32]byte{}), keyed: keyed, place: -1}, nil
}

func recordPath(dir string, round int64) string {
	return filepath.Join(dir, fmt.Sprintf("round-%06d", round))
}

// report writes a report. It is called in the batch's order, from place 0. A place for which it
// is not called has a report that could not be opened.
func (r *recorder) report(announcement [32]byte, round, place int64, m *randomizer.Report) error {
	if r.out == nil || r.round != round || place <= r.place {
		if err := r.begin(round); err != nil {
			return err
		}
		if r.keyed {
			if _, err := r.out.Write(announcement[:]); err != nil {
				return err
			}
		}
	}
	r.place = place
	b, err := randomizer.AppendReport(r.bytes[:0], r.mechanism, m)
	if err != nil {
		return err
	}
	r.bytes = b
	if _, err := r.out.Write(b); err != nil {
		return err
	}
	return r.out.Flush()
}

// close ends the current round's file.
func (r *recorder) close() {
	if r.file != nil {
		_ = r.file.Close() // everything was flushed
	}
	r.file, r.out, r.round, r.place = nil, nil, 0, -1
}

func (r *recorder) begin(round int64) error {
	r.close()
	file, err := os.OpenFile(recordPath(r.dir, round), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	r.file, r.out, r.round = file, bufio.NewWriterSize(file, 1<<16), round
	return nil
}

// sum writes the number of clients and the counts of a vector sum.
func (r *recorder) sum(round int64, counts []int64, clients int64) error {
	b := binary.LittleEndian.AppendUint64(nil, uint64(clients))
	for _, c := range counts {
		b = binary.LittleEndian.AppendUint64(b, uint64(c))
	}
	return os.WriteFile(recordPath(r.dir, round), b, 0o600)
}

// discard removes the record of a round that gives no step.
func (r *recorder) discard(round int64) error {
	r.close()
	if err := durable.Remove(recordPath(r.dir, round)); !absentFile(err) {
		return err
	}
	return nil
}

// readReports calls f with each report of a round, and returns their number. announcement is zero
// unless reports are seeds.
func readReports(path string, m randomizer.Mechanism, f func(*randomizer.Report)) (announcement [32]byte, n int64, err error) {
	file, err := durable.Open(path)
	if err != nil {
		return announcement, 0, err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 1<<16)
	if _, ok := m.(randomizer.Keyed); ok {
		if _, err := io.ReadFull(in, announcement[:]); err != nil {
			return announcement, 0, fmt.Errorf("operate: %s: %w", path, err)
		}
	}
	m = randomizer.ForRound(m, announcement)
	b := make([]byte, m.Facts().Bytes)
	for {
		if _, err := io.ReadFull(in, b); err == io.EOF {
			return announcement, n, nil
		} else if err != nil {
			return announcement, n, fmt.Errorf("operate: %s: %w", path, err)
		}
		report := m.NewReport()
		if err := randomizer.DecodeReport(b, m, report); err != nil {
			return announcement, n, fmt.Errorf("operate: %s: report %d: %w", path, n, err)
		}
		f(report)
		n++
	}
}

func readSum(path string) (counts []int64, clients int64, err error) {
	b, err := durable.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	if len(b) < 8 || len(b)%8 != 0 {
		return nil, 0, fmt.Errorf("operate: %s: %d bytes are not a sum", path, len(b))
	}
	for i := 8; i < len(b); i += 8 {
		counts = append(counts, int64(binary.LittleEndian.Uint64(b[i:])))
	}
	return counts, int64(binary.LittleEndian.Uint64(b)), nil
}

func absentFile(err error) bool { return errors.Is(err, fs.ErrNotExist) }
