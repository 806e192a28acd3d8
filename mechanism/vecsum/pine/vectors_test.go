package pine

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	Alpha          float64 `json:"alpha"`
	Chunk          int     `json:"chunk_length"`
	EqualityChunk  int     `json:"chunk_length_norm_equality"`
	Dimension      int     `json:"dimension"`
	Field          string  `json:"field"`
	Bound          int64   `json:"l2_norm_bound"`
	FracBits       int     `json:"num_frac_bits"`
	Checks         int     `json:"num_wr_checks"`
	Successes      int     `json:"num_wr_successes"`
	Proofs         int     `json:"proofs"`
	EqualityProofs int     `json:"proofs_norm_equality"`
	VerifyKey      string  `json:"verify_key"`
	Prep           []struct {
		InputShares  []string   `json:"input_shares"`
		Measurement  []float64  `json:"measurement"`
		Nonce        string     `json:"nonce"`
		OutShares    [][]string `json:"out_shares"`
		PrepMessages []string   `json:"prep_messages"`
		PrepShares   [][]string `json:"prep_shares"`
		PublicShare  string     `json:"public_share"`
		Rand         string     `json:"rand"`
	} `json:"prep"`
	AggShares []string  `json:"agg_shares"`
	AggResult []float64 `json:"agg_result"`
}

func TestFullVectors(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(os.Getenv("RIFFLE_PINE_VECTORS"), "Pine*.json"))
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var v vector
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatal(err)
			}
			c := Config{Dim: v.Dimension, Bound: v.Bound, Alpha: v.Alpha, Checks: v.Checks, Successes: v.Successes,
				Proofs: v.Proofs, EqualityProofs: v.EqualityProofs, Chunk: v.Chunk, EqualityChunk: v.EqualityChunk}
			fmt.Sscanf(v.Field, "Field%d", &c.Field)
			x, id := turboShake, uint32(draftID)
			if strings.Contains(file, "Hmac") {
				x, id = hmacAES, 0xffff1004
			}
			p, err := newPine(c, x, id)
			if err != nil {
				t.Fatal(err)
			}
			sums := [2][]byte{make([]byte, p.sizes.Out), make([]byte, p.sizes.Out)}
			for i, r := range v.Prep {
				x := make([]int64, len(r.Measurement))
				for j, f := range r.Measurement {
					x[j] = int64(math.RoundToEven(math.Ldexp(f, v.FracBits)))
				}
				nonce := unhex(t, r.Nonce)
				public, inputs, again := p.scheme.shard(x, nonce, unhex(t, r.Rand))
				if again {
					t.Error("projections fail")
				}
				equalHex(t, fmt.Sprint(i, " public"), public, r.PublicShare)
				var preps [2][]byte
				var states [2]*State
				for k := range 2 {
					equalHex(t, fmt.Sprint(i, " input ", k), inputs[k], r.InputShares[k])
					states[k], preps[k], err = p.prepInit(unhex(t, v.VerifyKey), k, nonce, public, inputs[k])
					if err != nil {
						t.Fatal(err)
					}
					equalHex(t, fmt.Sprint(i, " prep ", k), preps[k], r.PrepShares[0][k])
				}
				m, err := p.PrepMessage(preps[0], preps[1])
				if err != nil {
					t.Fatal(err)
				}
				equalHex(t, fmt.Sprint(i, " message"), m, r.PrepMessages[0])
				for k := range 2 {
					out, err := p.PrepNext(states[k], m)
					if err != nil {
						t.Fatal(err)
					}
					equalHex(t, fmt.Sprint(i, " out ", k), out, strings.Join(r.OutShares[k], ""))
					if err := p.Add(sums[k], out); err != nil {
						t.Fatal(err)
					}
				}
			}
			for k := range 2 {
				equalHex(t, fmt.Sprint("sum ", k), sums[k], v.AggShares[k])
			}
			all, err := p.Unshard(sums[0], sums[1])
			if err != nil {
				t.Fatal(err)
			}
			for j, s := range all {
				if math.Ldexp(float64(s), -v.FracBits) != v.AggResult[j] {
					t.Errorf("coordinate %d: %d", j, s)
				}
			}
		})
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func equalHex(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	if hex.EncodeToString(got) != want {
		t.Errorf("%s differs", what)
	}
}
