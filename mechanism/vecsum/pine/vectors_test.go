package pine

import (
	"compress/gzip"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/internal/golden"
)

// hmacAES is XofHmacSha256Aes128 of the draft, which only its vectors need.
var hmacAES = xof{seed: 32, open: func(seed, tag []byte, binder ...[]byte) stream {
	h := hmac.New(sha256.New, seed)
	h.Write([]byte{byte(len(tag))})
	h.Write(tag)
	for _, b := range binder {
		h.Write(b)
	}
	sum := h.Sum(nil)
	block, err := aes.NewCipher(sum[:16])
	if err != nil {
		panic(err)
	}
	return counter{cipher.NewCTR(block, sum[16:])}
}}

type counter struct{ cipher.Stream }

func (c counter) read(dst []byte) {
	clear(dst)
	c.XORKeyStream(dst, dst)
}

// vector is a file of the draft's test vectors.
type vector struct {
	Alpha          float64  `json:"alpha"`
	Chunk          int      `json:"chunk_length"`
	EqualityChunk  int      `json:"chunk_length_norm_equality"`
	Dimension      int      `json:"dimension"`
	Field          string   `json:"field"`
	Bound          int64    `json:"l2_norm_bound"`
	FracBits       int      `json:"num_frac_bits"`
	Checks         int      `json:"num_wr_checks"`
	Successes      int      `json:"num_wr_successes"`
	Proofs         int      `json:"proofs"`
	EqualityProofs int      `json:"proofs_norm_equality"`
	VerifyKey      string   `json:"verify_key"`
	Prep           []report `json:"prep"`
	AggShares      []string `json:"agg_shares"`
}

type report struct {
	InputShares  []string   `json:"input_shares"`
	Measurement  []float64  `json:"measurement"`
	Nonce        string     `json:"nonce"`
	OutShares    [][]string `json:"out_shares"`
	PrepMessages []string   `json:"prep_messages"`
	PrepShares   [][]string `json:"prep_shares"`
	PublicShare  string     `json:"public_share"`
	Rand         string     `json:"rand"`
}

var vectors = flag.String("vectors", "", "make testdata/vectors.tsv anew from the draft's files in this directory")

// TestVectors compares every message of the draft's test vectors of version 01 by its SHA-256;
// testdata/README.md says where they are from.
func TestVectors(t *testing.T) {
	if *vectors != "" {
		updateVectors(t)
	}
	rows := golden.Rows(t, "vectors.tsv", 16)
	var files, messages int
	for len(rows) > 0 {
		if len(rows[0]) != 13 {
			t.Fatalf("row of %d fields begins a file", len(rows[0]))
		}
		n := 1
		for n < len(rows) && len(rows[n]) == 2 {
			n++
		}
		t.Run(rows[0][0], func(t *testing.T) {
			testVector(t, rows[0], rows[1:n], func(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) })
		})
		files, messages, rows = files+1, messages+n-1, rows[n:]
	}
	if files != 16 || messages != 16*18 {
		t.Errorf("%d files with %d messages", files, messages)
	}
}

// configOf reads the row of a file's parameters. The first three are its name, the field and
// the number of fraction bits; a 1 is a vector's norm.
func configOf(t testing.TB, row []string) *Pine {
	t.Helper()
	number := func(i int) int {
		v, err := strconv.Atoi(row[i])
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	alpha, err := strconv.ParseFloat(row[12], 64)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Field: number(1), Dim: number(3), Bound: int64(number(4)), Chunk: number(5), EqualityChunk: number(6),
		Checks: number(7), Successes: number(8), Proofs: number(9), EqualityProofs: number(10), Alpha: alpha}
	x, id := turboShake, uint32(draftID)
	if row[11] == "hmac" {
		x, id = hmacAES, 0xffff1004
	}
	p, err := newPine(c, x, id)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sequence is 0, 1, 2, …: what the vectors have for random strings.
func sequence(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// testVector makes a file's two reports, of the unit vectors 0 and 1. messages are what a file has of
// each, encoded.
func testVector(t *testing.T, row []string, messages [][]string, encode func([]byte) string) {
	p := configOf(t, row)
	check := func(what string, got []byte) {
		t.Helper()
		if want := messages[0]; want[0] != what || want[1] != encode(got) {
			t.Errorf("%s: %.64s …, want %s: %.64s …", what, encode(got), want[0], want[1])
		}
		messages = messages[1:]
	}
	seed := turboShake.seed
	if row[11] == "hmac" {
		seed = hmacAES.seed
	}
	sums := [2][]byte{make([]byte, p.sizes.Out), make([]byte, p.sizes.Out)}
	for i := range 2 {
		name := func(s string) string { return fmt.Sprint("report ", i, " ", s) }
		x := make([]int64, p.config.Dim)
		x[i] = p.config.Bound
		nonce, key := sequence(16), sequence(seed)
		public, inputs, again := p.scheme.shard(x, nonce, sequence(seedCount*seed))
		if again {
			t.Error("projections fail")
		}
		check(name("public share"), public)
		var preps [2][]byte
		var states [2]*State
		var err error
		for k := range 2 {
			check(name(fmt.Sprint("input share ", k)), inputs[k])
			if states[k], preps[k], err = p.prepInit(key, k, nonce, public, inputs[k]); err != nil {
				t.Fatal(err)
			}
		}
		check(name("prep share 0"), preps[0])
		check(name("prep share 1"), preps[1])
		m, err := p.PrepMessage(preps[0], preps[1])
		if err != nil {
			t.Fatal(err)
		}
		check(name("prep message"), m)
		for k := range 2 {
			out, err := p.PrepNext(states[k], m)
			if err != nil {
				t.Fatal(err)
			}
			check(name(fmt.Sprint("out share ", k)), out)
			if err := p.Add(sums[k], out); err != nil {
				t.Fatal(err)
			}
		}
	}
	check("sum 0", sums[0])
	check("sum 1", sums[1])
	all, err := p.Unshard(sums[0], sums[1])
	if err != nil {
		t.Fatal(err)
	}
	for j, s := range all {
		if want := p.config.Bound; s != want && j < 2 || s != 0 && j >= 2 {
			t.Errorf("coordinate %d of the sum is %d", j, s)
		}
	}
}

// updateVectors writes the digests of the draft's files.
func updateVectors(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(*vectors, "Pine[16]*[48]_*.json"))
	if err != nil || len(files) != 16 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	var out strings.Builder
	out.WriteString("# SHA-256 of each message of draft-chen-cfrg-vdaf-pine's test vectors, version 01; see README.md.\n" +
		"# A file begins with: name, field, fraction bits, dimension, bound, chunk, equality chunk, checks, successes, proofs, equality proofs, XOF, alpha.\n")
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		row, messages := readVector(t, strings.TrimSuffix(filepath.Base(file), ".json"), raw)
		out.WriteString(strings.Join(row, "\t") + "\n")
		for _, m := range messages {
			b, err := hex.DecodeString(m[1])
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "%s\t%x\n", m[0], sha256.Sum256(b))
		}
	}
	if err := os.WriteFile("testdata/vectors.tsv", []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// readVector returns a file's parameters, as configOf reads them, and its messages in hexadecimal. It
// checks what testVector makes by a rule.
func readVector(t *testing.T, name string, raw []byte) (row []string, messages [][]string) {
	var v vector
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	xof := "turboshake"
	if strings.Contains(name, "Hmac") {
		xof = "hmac"
	}
	row = strings.Split(fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%v", name, strings.TrimPrefix(v.Field, "Field"), v.FracBits, v.Dimension, v.Bound,
		v.Chunk, v.EqualityChunk, v.Checks, v.Successes, v.Proofs, v.EqualityProofs, xof, v.Alpha), "\t")
	if v.Bound != 1<<v.FracBits {
		t.Errorf("%s: bound %d with %d fraction bits", name, v.Bound, v.FracBits)
	}
	for i, r := range v.Prep {
		for s, size := range map[string]int{r.Nonce: 16, r.Rand: len(r.Rand) / 2, v.VerifyKey: len(r.Rand) / 2 / seedCount} {
			if s != hex.EncodeToString(sequence(size)) {
				t.Errorf("%s: a random string is not 0, 1, …: %s", name, s)
			}
		}
		for j, x := range r.Measurement {
			if (x == 1) != (j == i) || x != 0 && x != 1 {
				t.Errorf("%s: report %d is of another vector", name, i)
			}
		}
		line := func(what, message string) {
			messages = append(messages, []string{fmt.Sprint("report ", i, " ", what), message})
		}
		line("public share", r.PublicShare)
		line("input share 0", r.InputShares[0])
		line("input share 1", r.InputShares[1])
		line("prep share 0", r.PrepShares[0][0])
		line("prep share 1", r.PrepShares[0][1])
		line("prep message", r.PrepMessages[0])
		line("out share 0", strings.Join(r.OutShares[0], ""))
		line("out share 1", strings.Join(r.OutShares[1], ""))
	}
	return row, append(messages, []string{"sum 0", v.AggShares[0]}, []string{"sum 1", v.AggShares[1]})
}

// TestVectorFiles compares every message with those of the draft's own files; see
// testdata/third_party/README.md.
func TestVectorFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/third_party/*.json.gz")
	if err != nil || len(files) != 8 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".json.gz")
		row, messages := readVector(t, name, raw)
		if len(messages) != 18 {
			t.Errorf("%s: %d messages", name, len(messages))
		}
		t.Run(name, func(t *testing.T) { testVector(t, row, messages, hex.EncodeToString) })
	}
}
