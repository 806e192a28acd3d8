package client

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// A client's ledger is text: a header, then a line for each decision. A line ends with
// its check: the first 8 bytes of the SHA-256 of the previous line's check and of the
// line itself, so that a line that was changed or removed is found. A last line without
// its newline was never acted upon, and is dropped.
//
//	sent CLIENT TASK ROUND ANNOUNCEMENT SEALED TAIL CLASS EPS0 SIGMA SYMBOLS TV TRUST CROWD [messages=M] CHECK
//	kept CLIENT TASK ROUND ANNOUNCEMENT TIMES TAIL CLASS EPS0 SIGMA SYMBOLS TV TRUST CROWD CHECK
//	pass CLIENT TASK ROUND ANNOUNCEMENT CHECK
//
// For reports of class rising, TV is followed by a field HEIGHT:ETA:SHARE:SHARE:….
//
// A sent report of several messages says how many. A kept line stands for TIMES sent messages of rounds up to ROUND. In each task a client has one
// kept line for each different charge of its reports.
const bookHeader = "riffle-client-ledger 1\n"

// decision is a line of the ledger.
type decision struct {
	client       wire.ID
	task         [32]byte
	round        int64
	announcement [32]byte
	times        int64    // number of messages; 0: the coin said no
	sealed       [32]byte // digest of the sealed report; zero in a kept line
	kept         bool
	tail         float64
	charge       dp.Round
}

type check [8]byte

// next returns the check of a line that follows one with check c.
func (c check) next(line []byte) check {
	h := sha256.New()
	h.Write(c[:])
	h.Write(line)
	return check(h.Sum(nil)[:8])
}

// bookStart returns the check of the header.
func bookStart() check { return check{}.next([]byte(bookHeader)) }

// append adds d's line and returns its check.
func (d decision) append(dst []byte, before check) ([]byte, check) {
	start := len(dst)
	kind := "pass"
	switch {
	case d.kept:
		kind = "kept"
	case d.times > 0:
		kind = "sent"
	}
	dst = fmt.Appendf(dst, "%s %x %x %d %x", kind, d.client, d.task, d.round, d.announcement)
	if r := d.charge; d.times > 0 {
		if d.kept {
			dst = fmt.Appendf(dst, " %d", d.times)
		} else {
			dst = fmt.Appendf(dst, " %x", d.sealed)
		}
		dst = fmt.Appendf(dst, " %s %s %s %s %d %s", number(d.tail), r.Report.Class, number(r.Report.Eps0), number(r.Report.Sigma), r.Report.Symbols, number(r.Report.TV))
		if r.Report.Class == dp.Rising {
			dst = appendSteps(append(dst, ' '), r.Report.Steps)
		}
		dst = fmt.Appendf(dst, " %s %d", r.Trust, r.Population)
		if !d.kept && d.times > 1 {
			dst = fmt.Appendf(dst, " messages=%d", d.times)
		}
	}
	c := before.next(dst[start:])
	return fmt.Appendf(dst, " %x\n", c), c
}

// number returns the shortest text that reads back as v.
func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func appendSteps(dst []byte, s dp.Steps) []byte {
	dst = fmt.Appendf(dst, "%s:%s", number(s.Height), number(s.Eta))
	for _, q := range s.Each() {
		dst = fmt.Appendf(dst, ":%s", number(q))
	}
	return dst
}

func parseSteps(text string) (s dp.Steps, err error) {
	f := strings.Split(text, ":")
	if len(f) < 2 || len(f)-2 > dp.MaxSteps {
		return s, fmt.Errorf("steps %.64q", text)
	}
	s.Count = len(f) - 2
	into := []*float64{&s.Height, &s.Eta}
	for i := range s.Each() {
		into = append(into, &s.Shares[i])
	}
	for i, v := range into {
		x, e := strconv.ParseFloat(f[i], 64)
		*v, err = x, errors.Join(err, e)
	}
	return s, err
}

// keep returns the kept lines that stand for the history h.
func keep(id wire.ID, h *client.History) []decision {
	var out []decision
	for _, s := range h.Tasks {
		d := decision{client: id, task: s.Task, round: s.Round, announcement: s.Announcement}
		for _, c := range s.Charges {
			d.kept, d.times, d.tail, d.charge = true, c.Times, s.Tail, c.Event.(dp.Round)
			out = append(out, d)
		}
		if len(s.Charges) == 0 {
			out = append(out, d)
		}
	}
	return out
}

// ErrDamaged is wrapped where a client's ledger is not as it was written, and ErrVersion where another version
// of this program wrote it.
var (
	ErrDamaged = errors.New("client: the ledger is damaged")
	ErrVersion = errors.New("client: the ledger is of another version")
)

// decodeBook reads a ledger's bytes. It returns the decisions, the check of the last one, and
// the number of bytes they take; a torn line may follow, and others after zeros.
func decodeBook(b []byte) (all []decision, last check, size int, err error) {
	if !bytes.HasPrefix(b, []byte(bookHeader)) {
		if line, _, _ := bytes.Cut(b, []byte("\n")); bytes.HasPrefix(line, []byte("riffle-client-ledger ")) {
			return nil, last, 0, fmt.Errorf("%w: it begins with %.40q, this program reads %q", ErrVersion, line, bookHeader)
		}
		return nil, last, 0, fmt.Errorf("%w: it does not start as one", ErrDamaged)
	}
	text := durable.Text(b)
	if err := unsynced(b[len(text):]); err != nil {
		return nil, last, 0, err
	}
	b, last = text, bookStart()
	size = len(bookHeader)
	rounds := map[string]int64{}
	for n := 2; ; n++ {
		line, _, whole := bytes.Cut(b[size:], []byte("\n"))
		if !whole {
			return all, last, size, nil
		}
		d, err := parseLine(string(line))
		if err != nil {
			return nil, last, 0, fmt.Errorf("%w: line %d: %v", ErrDamaged, n, err)
		}
		again, c := d.append(nil, last)
		if string(again) != string(line)+"\n" {
			return nil, last, 0, fmt.Errorf("%w: line %d was changed, or one before it taken out", ErrDamaged, n)
		}
		key := string(d.client[:]) + string(d.task[:])
		if d.round < rounds[key] || d.round == rounds[key] && !d.kept {
			return nil, last, 0, fmt.Errorf("%w: line %d: round %d after round %d", ErrDamaged, n, d.round, rounds[key])
		}
		rounds[key] = d.round
		all, last = append(all, d), c
		size += len(line) + 1
	}
}

// unsynced refuses what follows a zero byte if it cannot be from one power failure: a client's charge
// is durable, with all before it, before the client charges another round of the task.
func unsynced(rest []byte) error {
	charged := map[string]bool{}
	for _, line := range bytes.Split(rest, []byte("\n")) {
		d, err := parseLine(string(line))
		if err != nil || d.times == 0 || d.kept {
			continue
		}
		key := string(d.client[:]) + string(d.task[:])
		if charged[key] {
			return fmt.Errorf("%w: zeros before round %d, and an earlier round after them was stored already", ErrDamaged, d.round)
		}
		charged[key] = true
	}
	return nil
}

func parseLine(line string) (d decision, err error) {
	f := strings.Split(line, " ")
	var steps, messages string
	if len(f) > 15 && dp.Class(f[7]) == dp.Rising {
		steps = f[12]
		f = slices.Delete(f, 12, 13)
	}
	if len(f) == 16 && f[0] == "sent" {
		var found bool
		if messages, found = strings.CutPrefix(f[14], "messages="); !found {
			return d, fmt.Errorf("%.20q for a number of messages", f[14])
		}
		f = append(f[:14], f[15])
	}
	switch {
	case len(f) == 15 && f[0] == "sent":
		d.times = 1
	case len(f) == 15 && f[0] == "kept":
		d.kept = true
	case len(f) == 6 && f[0] == "pass":
	default:
		return d, fmt.Errorf("%d fields of a %.8q", len(f), f[0])
	}
	raw := func(dst []byte, text string) {
		if len(text) != 2*len(dst) {
			err = errors.Join(err, fmt.Errorf("digest of %d digits", len(text)))
			return
		}
		_, e := hex.Decode(dst, []byte(text))
		err = errors.Join(err, e)
	}
	count := func(text string) int64 {
		v, e := strconv.ParseInt(text, 10, 64)
		err = errors.Join(err, e)
		return v
	}
	float := func(text string) float64 {
		v, e := strconv.ParseFloat(text, 64)
		err = errors.Join(err, e)
		return v
	}
	raw(d.client[:], f[1])
	raw(d.task[:], f[2])
	d.round = count(f[3])
	raw(d.announcement[:], f[4])
	if err == nil && d.round < 1 {
		err = fmt.Errorf("round %d", d.round)
	}
	if err != nil || d.times == 0 && !d.kept {
		return d, err
	}
	if d.kept {
		d.times = count(f[5])
	} else {
		raw(d.sealed[:], f[5])
		if messages != "" {
			d.times = count(messages)
		}
	}
	d.tail = float(f[6])
	r := &d.charge
	r.Report.Class, r.Report.Eps0, r.Report.Sigma = dp.Class(f[7]), float(f[8]), float(f[9])
	symbols := count(f[10])
	r.Report.Symbols, r.Report.TV, r.Trust = int(symbols), float(f[11]), dp.Trust(f[12])
	r.Participation, r.Population = dp.All, count(f[13])
	if steps != "" {
		var e error
		r.Report.Steps, e = parseSteps(steps)
		err = errors.Join(err, e)
	}
	r.Reports = r.Population
	switch {
	case err != nil:
	case int64(r.Report.Symbols) != symbols:
		err = fmt.Errorf("%d symbols", symbols)
	case d.times < 1:
		err = fmt.Errorf("%d messages", d.times)
	case !(d.tail >= 0 && d.tail < 1) || math.Signbit(d.tail):
		err = fmt.Errorf("tail %v", d.tail)
	default:
		err = r.Validate()
	}
	return d, err
}
