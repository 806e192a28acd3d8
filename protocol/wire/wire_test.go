package wire

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
)

var update = flag.Bool("update", false, "write the vectors anew; a changed vector is a changed protocol")

// vector is a value with its codec, by name.
type vector struct {
	name   string
	bytes  []byte
	decode func([]byte) (any, []byte, error) // the value, and its encoding
	value  any
}

func key(s Suite, n byte) Key {
	return Key{Suite: s, Public: bytes.Repeat([]byte{n}, 32), Expires: 1800000000}
}

func fill(n byte) (d [32]byte) { return [32]byte(bytes.Repeat([]byte{n}, 32)) }

func vectorOf[T any, P message[T]](name string, v T) vector {
	return vector{name, Encode[T, P](v), func(b []byte) (any, []byte, error) {
		m, err := Decode[T, P](b)
		return m, Encode[T, P](m), err
	}, v}
}

func messages() []vector {
	sum := Sum{Users: 1000, MinUsers: 900, Honest: .9, Grid: 64, Norm: 5000, Noise: "binomial", NoiseBits: 40, NoiseP: .5, Split: true, Sigma: .25}
	enrolment := Enrolment{Population: ID{1}, Serial: 3, Clients: 1000, Roster: fill(7), MinReports: 10,
		Shuffler: []Key{key(X25519, 1), key(X25519MLKEM768, 2)}, Aggregator: []Key{key(X25519, 3)}, From: 1700000000, To: 1800000000}
	task := Task{Population: ID{1}, Name: "digits", Trust: dp.Distributed, Participation: dp.CheckIn, MinReports: 10, Rounds: 80, Delta: 1e-5,
		Mechanism: Mechanism{Name: "vector-sum-binomial", Dim: 4420, Clip: 1.5, ClipMode: "norm", Sum: sum}, Config: []byte("model: hog-linear\n")}
	ann := Announcement{Task: fill(1), Round: 5, ModelDigest: fill(2), Trust: dp.Shuffle, Participation: dp.CheckIn, Population: 1000, Gamma: .5,
		MinReports: 10, Randomizer: "privunit", Eps0: 3.0001, Clip: .25, Enrolment: fill(3), Opens: 1790000000000, Deadline: 1790000060000,
		Coordinator: key(X25519, 4), ReportBytes: 300}
	closed := RoundClosed{Announcement: fill(4), Round: 5, Reports: 498, Digest: fill(5), Shares: fill(6), Chunks: 3,
		Rejected: []Rejection{{Malformed, 2}, {Duplicate, 7}}}
	entry := Entry{Before: fill(8), Population: ID{1}, Task: fill(1), Round: 5, Announcement: fill(4), Batch: fill(5),
		Event: dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 3.0001}, Trust: dp.Shuffle, Participation: dp.CheckIn, Population: 1000, Gamma: .5, Least: 498}}
	rising := entry
	rising.Event.Report = dp.Report{Class: dp.Rising, Eps0: 2.835, Steps: dp.NewSteps(5.338, []float64{.171, .068, .0217}, 1.83e-7)}
	exclusion := Exclusion{Announcement: fill(4), Reports: 498, Places: []int64{0, 17, 497}}
	ids := ShareIDs{Announcement: fill(4), IDs: [][16]byte{{1}, {}, {3, 14: 5, 15: 9}}}
	partial := Partial{Announcement: fill(4), Exclusion: fill(9), Tag: [16]byte{3}, Index: 1, Clients: 495, Reports: fill(10), Sums: []uint64{0, 1, math.MaxUint32}}
	chunk := Chunk{Index: 2, Size: 3, Items: []byte("abcdef")}
	request := SessionRequest{Population: ID{1}, Client: ID{5}, Time: 1790000000, Suite: X25519, Public: bytes.Repeat([]byte{7}, 32)}
	session := Session{Expires: 1790640000, Key: SessionKey(fill(11))}
	ask := Ask{Announcement: fill(4), Client: ID{5}}
	Authenticate(&ask, session)
	report := Report{Announcement: fill(4), Client: ID{5}, ID: ID{6}, Part: []byte("part of it"), Share: []byte("share")}
	Authenticate(&report, session)
	shaped, several := task, ann // with optional parts
	shaped.Mechanism = Mechanism{Name: "stepunit", Dim: 1930, Clip: .25, ClipMode: "norm", Eps0: 2.834, Encoding: EncodingSeed, Edges: []float64{.95, 1.49, 2.02}, Height: 5.338}
	shaped.Trust, shaped.Participation, shaped.Messages = dp.Shuffle, dp.All, 8
	several.Messages = 8
	one := task
	one.Messages = 2
	charged := entry
	charged.Times = 8
	proved := task
	proved.Mechanism.Name = "vector-sum-by-aggregators"
	proved.Mechanism.Sum = Sum{Users: 1000, Sigma: 1.25, NoiseBy: NoiseByAggregators, Proofs: ProofsPine, Steps: 1 << 15, Bound: 1<<15 + 34, Variance: 1681392461}
	correlated, mixed := proved, exclusion
	correlated.Every, correlated.Mechanism.WeightBits, correlated.Mechanism.Weights = 3, 4, []int64{16, 9, 5}
	mixed.Earlier = [][32]byte{fill(15), fill(16)}
	agreed := Agreed{Announcement: fill(4), Exclusion: fill(9)}
	noisy := partial
	noisy.Sums = []uint64{0, 1, 1<<64 - 1<<32}
	proofs := Proofs{Announcement: fill(4), Message: []byte("what is said of some places")}
	registered := enrolment
	registered.Registrar = []byte("what a registrar has signed")
	tokened := task
	tokened.Tokens = Tokens{Epoch: ID{12}, Keys: fill(13)}
	asked := task
	asked.ModelDim = 1
	counted, countedApart := task, proved
	counted.Mechanism.Sum = Sum{Users: 1000, MinUsers: 900, Honest: 1, Grid: 9, Noise: "binomial", NoiseBits: 30, Sigma: .4, Ones: 2}
	countedApart.Mechanism.Sum.Ones = 1930
	keys := TokenKeys{Population: ID{1}, Epoch: ID{12}, Messages: 2, Moduli: [][TokenModulus]byte{{1, 255: 3}, {4, 255: 5}}}
	grant := TokenRequest{Population: ID{1}, Client: ID{5}, Epoch: ID{12}, First: MaxGrant, Count: 3, Blinded: fill(14)}
	receipted := task
	receipted.Receipts = true
	receipts := Receipts{Announcement: fill(4), Closed: fill(12), Whole: 495, Half: 2, Unopened: 1, List: fill(13)}
	told := ann
	told.Ledger = &Head{Entries: 7, Digest: fill(12)}
	return []vector{
		vectorOf("enrolment", enrolment),
		vectorOf("task", task),
		vectorOf("announcement", ann),
		vectorOf("closed", closed),
		vectorOf("chunk", chunk),
		vectorOf("ask", ask),
		vectorOf("session-request", request),
		vectorOf("session", session),
		{"report", report.Append(nil), func(b []byte) (any, []byte, error) {
			m, err := DecodeReport(b, report.Announcement, 10, 5)
			return m, m.Append(nil), err
		}, report},
		vectorOf("entry", entry),
		vectorOf("entry-rising", rising),
		vectorOf("exclusion", exclusion),
		vectorOf("share-ids", ids),
		vectorOf("partial", partial),
		vectorOf("receipts", receipts),
		vectorOf("task-steps", shaped),
		vectorOf("task-receipts", receipted),
		vectorOf("task-messages", one),
		vectorOf("announcement-messages", several),
		vectorOf("entry-times", charged),
		vectorOf("task-proofs", proved),
		vectorOf("task-weights", correlated),
		vectorOf("exclusion-earlier", mixed),
		vectorOf("partial-field", noisy),
		vectorOf("agreed", agreed),
		vectorOf("proof-key", ProofKey{Announcement: fill(4), Closed: fill(14), Key: VerifyKey{15}}),
		vectorOf("proofs", proofs),
		vectorOf("enrolment-registrar", registered),
		vectorOf("task-tokens", tokened),
		vectorOf("task-parameters", asked),
		vectorOf("task-ones", counted),
		vectorOf("task-proofs-ones", countedApart),
		vectorOf("token-keys", keys),
		vectorOf("token-request", grant),
		vectorOf("announcement-ledger", told),
		vectorOf("head", HeadStatement{Population: ID{1}, Head: *told.Ledger}),
		vectorOf("session-taken", Session{Expires: session.Expires, Key: session.Key, Taken: &ann.Population}),
		vectorOf("session-passes", Session{Expires: session.Expires, Key: session.Key, Passes: []ID{{1}, {2, 15: 3}}}),
		vectorOf("relay-view", RelayView{Keys: []SessionKey{{18}, {19}}, Enrolments: [][]byte{[]byte("the newest"), []byte("an older one")},
			Rounds: []RelayRound{{fill(4), 1}, {fill(5), 0}}}),
		vectorOf("relay-view-0", RelayView{}),
		vectorOf("head-0", HeadStatement{Population: ID{1}}),
		vectorOf("opening", Opening{Announcement: fill(4), Task: []byte("a task"), Size: 300, From: 64, Keys: [][]byte{[]byte("to one"), []byte("to another")}, Digests: [][32]byte{fill(15), fill(16)}}),
		vectorOf("opened", Opened{Announcement: fill(4), From: 64, To: 66, Ticket: fill(17), Accepted: 3, WrongKey: 1, OutOfRange: 2, Sum: []int64{5, 0, -7},
			Identities: [][16]byte{{1}, {1}, {2}}, Receipts: []ID{{}, {3}, {4}, {5}}}),
		vectorOf("opened-plain", Opened{Announcement: fill(4), To: 1, Accepted: 9, Sum: []int64{1}}),
	}
}

// Another program can check itself against these.
func TestVectors(t *testing.T) {
	for _, m := range messages() {
		path := filepath.Join("testdata", m.name+".hex")
		text := hex.EncodeToString(m.bytes) + "\n"
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if text != string(want) {
			t.Errorf("%s: encoding changed:\n%s", m.name, text)
		}
	}
}

func TestMessagesRoundTrip(t *testing.T) {
	for _, m := range messages() {
		got, again, err := m.decode(m.bytes)
		if err != nil || !reflect.DeepEqual(got, m.value) || !bytes.Equal(again, m.bytes) {
			t.Errorf("%s: %+v (%v), want %+v", m.name, got, err, m.value)
		}
	}
}

// Whatever a byte is changed to, the message is refused or means something else.
func TestTamperedMessages(t *testing.T) {
	for _, m := range messages() {
		for i := range m.bytes {
			for _, flip := range []byte{1, 0x80} {
				b := bytes.Clone(m.bytes)
				b[i] ^= flip
				got, again, err := m.decode(b)
				switch {
				case err != nil && !errors.Is(err, ErrMalformed):
					t.Fatalf("%s, byte %d: %v is not ErrMalformed", m.name, i, err)
				case err == nil && (reflect.DeepEqual(got, m.value) || !bytes.Equal(again, b)):
					t.Fatalf("%s: byte %d does not matter", m.name, i)
				}
			}
		}
		cuts := 0
		for n := range m.bytes {
			// Without its parts a message is another one, with another digest.
			got, again, err := m.decode(m.bytes[:n])
			another := err == nil && !reflect.DeepEqual(got, m.value) && bytes.Equal(again, m.bytes[:n])
			if !errors.Is(err, ErrMalformed) && !another {
				t.Fatalf("%s: %d of %d bytes: %v", m.name, n, len(m.bytes), err)
			}
			if another {
				cuts++
			}
		}
		if cuts > 1 {
			t.Errorf("%s: read when cut short at %d lengths", m.name, cuts)
		}
		if _, _, err := m.decode(append(bytes.Clone(m.bytes), 0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: a byte too many: %v", m.name, err)
		}
	}
}

func TestRefusedValues(t *testing.T) {
	ann := messages()[2].value.(Announcement)
	for want, change := range map[string]func(*Announcement){
		"n-min 1001":         func(a *Announcement) { a.MinReports = 1001 },
		"round 0":            func(a *Announcement) { a.Round = 0 },
		"p = 2":              func(a *Announcement) { a.Gamma = 2 },
		"p = 0":              func(a *Announcement) { a.Gamma = 0 },
		"eps0 = NaN":         func(a *Announcement) { a.Eps0 = math.NaN() },
		"clip = +Inf":        func(a *Announcement) { a.Clip = math.Inf(1) },
		"sigma = -0":         func(a *Announcement) { a.Sigma = math.Copysign(0, -1) },
		`trust "trusted"`:    func(a *Announcement) { a.Trust = "trusted" },
		"participation \"\"": func(a *Announcement) { a.Participation = "" },
		"deadline":           func(a *Announcement) { a.Deadline = a.Opens - 1 },
		"n = -1":             func(a *Announcement) { a.Population = -1 },
		"key of suite 9":     func(a *Announcement) { a.Coordinator.Suite = 9 },
		"parts of":           func(a *Announcement) { a.ReportBytes = 1 << 40 },
		"k = 9 must":         func(a *Announcement) { a.Participation, a.Sample = dp.Sampled, 9 },
	} {
		a := ann
		change(&a)
		if _, err := Decode[Announcement](Encode(a)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// A message without optional parts ends with its fields; parts have one encoding.
func TestParts(t *testing.T) {
	plain := messages()[1].value.(Task)
	same := plain
	same.Messages, same.Mechanism.Encoding, same.Mechanism.Edges = 1, EncodingValues, []float64{}
	if !bytes.Equal(Encode(plain), Encode(same)) || Digest(plain) != Digest(same) {
		t.Error("a task without parts has two encodings")
	}
	const (
		messages2 = "01" + "08000000" + "0200000000000000"
		seed      = "02" + "04000000" + "73656564"
		receipts  = "04" + "01000000" + "01"
		tokens    = "05" + "30000000" + "0c0000000000000000000000000000000d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d0d"
		steps     = "03" + "10000000" + "000000000000f03f" + "000000000000e03f" // height 1, edge .5
	)
	base := Encode(plain)
	for tail, want := range map[string]string{
		"01" + messages2:                  "",
		"02" + messages2 + seed:           "",
		"03" + messages2 + seed + steps:   "",
		"01" + steps:                      "",
		"":                                "",
		"00":                              "a list of no parts",
		"02" + messages2:                  "0 bytes where 1 are needed",
		"01" + messages2 + seed:           "9 bytes left over",
		"02" + seed + messages2:           "part 1, unknown or out of order",
		"02" + seed + seed:                "part 2, unknown or out of order",
		"01" + receipts:                   "",
		"02" + messages2 + receipts:       "",
		"01" + "04" + "00000000":          "0 bytes where 1 are needed",
		"01" + "04" + "01000000" + "00":   "part 4 says what its absence says",
		"01" + "04" + "01000000" + "02":   "flag 2",
		"01" + "04" + "02000000" + "0101": "1 bytes left over",
		"02" + receipts + tokens:          "",
		"02" + tokens + receipts:          "part 4, unknown or out of order",
		"01" + "05" + "00000000":          "0 bytes where 16 are needed",
		"01" + "05" + "30000000" + strings.Repeat("00", 48):                                     "part 5 says what its absence says",
		"01" + "05" + "31000000" + strings.Repeat("01", 49):                                     "1 bytes left over",
		"01" + "06" + "00000000":                                                                "part 6, unknown",
		"01" + "00" + "00000000":                                                                "part 0, unknown",
		"01" + "01" + "08000000" + "0100000000000000":                                           "1 messages must lie",
		"01" + "01" + "08000000" + "0110000000000000":                                           "4097 messages must lie",
		"01" + "01" + "08000000" + "00ca9a3b00000000":                                           "1000000000 messages must lie",
		"01" + "01" + "09000000" + "020000000000000000":                                         "1 bytes left over",
		"01" + "01" + "07000000" + "02000000000000":                                             "7 bytes where 8 are needed",
		"01" + "01" + "ffffffff" + "02":                                                         "part of 4294967295 bytes",
		"01" + "01" + "00001000" + "02":                                                         "1 bytes where 1048576 are needed",
		"01" + "02" + "06000000" + "76616c756573":                                               `encoding "values"`,
		"01" + "02" + "00000000":                                                                `encoding ""`,
		"01" + "03" + "08000000" + "000000000000f03f":                                           "0 edges of height 1",
		"01" + "03" + "10000000" + "0000000000000000" + "000000000000e03f":                      "1 edges of height 0",
		"01" + "03" + "18000000" + "000000000000f03f" + "000000000000e03f" + "000000000000e03f": "edge 0.5 after 0.5",
		"01" + "03" + "11000000" + "000000000000f03f" + "000000000000e03f" + "00":               "1 bytes left over",
		"01" + "03" + "08020000" + "000000000000f03f" + strings.Repeat("000000000000e03f", 64):  "edge 0.5 after 0.5",
		"01" + "03" + "10000000" + "000000000000f03f" + "000000000000f8ff":                      "edge = NaN",
	} {
		b := append(bytes.Clone(base), mustHex(t, tail)...)
		m, err := Decode[Task](b)
		switch {
		case want == "" && (err != nil || !bytes.Equal(Encode(m), b)):
			t.Errorf("%s: %v", tail, err)
		case want != "" && (!errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: error %v, want %q", tail, err, want)
		}
	}
	for _, m := range messages() {
		if m.name == "report" { // it is sealed, and its header has the version
			continue
		}
		for _, version := range []byte{0, 2, 255} {
			b := bytes.Clone(m.bytes)
			b[0] = version
			want := fmt.Sprintf("version %d, this program speaks 1", version)
			if _, _, err := m.decode(b); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", m.name, err, want)
			}
		}
	}
	// What a client seals in a round has a limit, whatever the number of messages.
	ann := messages()[2].value.(Announcement)
	ann.Messages, ann.ReportBytes = 64, 1<<20
	if _, err := Decode[Announcement](Encode(ann)); err != nil {
		t.Error(err)
	}
	ann.ReportBytes++
	if _, err := Decode[Announcement](Encode(ann)); err == nil || !strings.Contains(err.Error(), "64 parts of 1048577 bytes") {
		t.Errorf("parts of 64 MiB and more: %v", err)
	}
}

func TestRefusedTokenMessages(t *testing.T) {
	for want, m := range map[string]TokenKeys{
		"0 keys for 1":  {Messages: 1},
		"3 keys for 2":  {Messages: 2, Moduli: make([][TokenModulus]byte, 3)},
		"1 keys for 0":  {Moduli: make([][TokenModulus]byte, 1)},
		"16385 keys":    {Messages: 1, Moduli: make([][TokenModulus]byte, MaxTokens+1)},
		"messages = -1": {Messages: -1, Moduli: make([][TokenModulus]byte, 1)},
	} {
		if _, err := Decode[TokenKeys](Encode(m)); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for want, m := range map[string]TokenRequest{
		"for 0 tokens":        {},
		"for 129 tokens":      {Count: MaxGrant + 1},
		"2 tokens from 1,":    {First: 1, Count: 2},
		"1 tokens from 16384": {First: MaxTokens, Count: 1},
		"first = -128":        {First: -MaxGrant, Count: 1},
	} {
		if _, err := Decode[TokenRequest](Encode(m)); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(Sign(private, LabelTokens, Encode(TokenRequest{}))); n != SignedTokenRequest {
		t.Errorf("a signed request has %d bytes, want %d", n, SignedTokenRequest)
	}
}

func TestSignatures(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	message := []byte("a message")
	signed := Sign(private, LabelTask, message)
	if got, err := Verify(public, LabelTask, signed); err != nil || !bytes.Equal(got, message) {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := Verify(public, LabelClosed, signed); !errors.Is(err, ErrSignature) {
		t.Errorf("another label: %v", err)
	}
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(other, LabelTask, signed); !errors.Is(err, ErrSignature) {
		t.Errorf("another key: %v", err)
	}
	for i := range signed {
		bad := bytes.Clone(signed)
		bad[i] ^= 4
		if _, err := Verify(public, LabelTask, bad); !errors.Is(err, ErrSignature) {
			t.Errorf("byte %d changed: %v", i, err)
		}
	}
	if _, err := Verify(public, LabelTask, signed[:63]); !errors.Is(err, ErrMalformed) {
		t.Errorf("short: %v", err)
	}
	if _, err := Verify(nil, LabelTask, signed); err == nil {
		t.Error("verified without a key")
	}
}

func TestReportsAreAuthenticated(t *testing.T) {
	s := Session{Expires: 86400, Key: SessionKey{1, 2, 3}}
	r := Report{Announcement: fill(1), Client: ID{7}, ID: ID{2}, Part: []byte("part of it"), Share: []byte("share")}
	Authenticate(&r, s)
	b := r.Append(nil)
	if int64(len(b)) != ReportSize(10, 5) {
		t.Fatalf("%d bytes, want %d", len(b), ReportSize(10, 5))
	}
	got, err := DecodeReport(b, r.Announcement, 10, 5)
	if err != nil || !reflect.DeepEqual(got, r) || Authentic(&got, s.Key) != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range b {
		for bit := range 8 {
			bad := bytes.Clone(b)
			bad[i] ^= 1 << bit
			got, err := DecodeReport(bad, r.Announcement, 10, 5)
			if err == nil {
				err = Authentic(&got, s.Key)
			}
			if !errors.Is(err, ErrMAC) && !errors.Is(err, ErrMalformed) {
				t.Fatalf("byte %d changed: %v", i, err)
			}
		}
	}
	for i := range s.Key {
		bad := s.Key
		bad[i] ^= 1
		if err := Authentic(&got, bad); !errors.Is(err, ErrMAC) {
			t.Fatalf("byte %d of the key changed: %v", i, err)
		}
	}
	// A byte cannot move from the part to the share.
	if got, err := DecodeReport(b, r.Announcement, 9, 6); err != nil || Authentic(&got, s.Key) == nil {
		t.Errorf("parts of other sizes: %v", err)
	}
	if got, err := DecodeReport(b, fill(2), 10, 5); err != nil || Authentic(&got, s.Key) == nil {
		t.Errorf("another round: %v", err)
	}
	if _, err := DecodeReport(b[:20], r.Announcement, 10, 5); !errors.Is(err, ErrMalformed) {
		t.Errorf("short: %v", err)
	}
}

func TestAsksAreAuthenticated(t *testing.T) {
	s := Session{Expires: 86400, Key: SessionKey{1, 2, 3}}
	m := Ask{Announcement: fill(1), Client: ID{7}}
	Authenticate(&m, s)
	b := Encode(m)
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		got, err := Decode[Ask](bad)
		if err == nil {
			err = Authentic(&got, s.Key)
		}
		if !errors.Is(err, ErrMAC) && !errors.Is(err, ErrMalformed) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
	if err := Authentic(&m, s.Key); err != nil {
		t.Error(err)
	}
	if err := Authentic(&m, SessionKey{1, 2, 4}); !errors.Is(err, ErrMAC) {
		t.Errorf("another key: %v", err)
	}
	// What authenticates a report of the same fields is no ask's.
	r := Report{Announcement: m.Announcement, Client: m.Client}
	if Authenticate(&r, s); r.MAC == m.MAC {
		t.Error("a report's MAC is an ask's")
	}
}

func TestSessionKeysDoNotPrint(t *testing.T) {
	s := Session{Expires: 5, Key: SessionKey(bytes.Repeat([]byte("K"), 32))}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q"} {
		text := fmt.Sprintf(format, s) + fmt.Sprintf(format, s.Key) + fmt.Sprintf(format, &s)
		if strings.Contains(text, "KKK") || strings.Contains(text, "4b4b") || strings.Contains(text, "75 75") || strings.Contains(text, "0x4b, 0x4b") {
			t.Errorf("%s: %s", format, text)
		}
	}
}

func TestKeysExpire(t *testing.T) {
	k := key(X25519, 1)
	if err := k.Valid(time.Unix(k.Expires-1, 0)); err != nil {
		t.Error(err)
	}
	if err := k.Valid(time.Unix(k.Expires, 0)); err == nil {
		t.Error("an expired key is valid")
	}
	if err := (Key{}).Valid(time.Unix(0, 0)); err == nil {
		t.Error("no key is valid")
	}
	if k.ID() == key(X25519, 2).ID() || k.ID() == key(X25519MLKEM768, 1).ID() {
		t.Error("two keys of one id")
	}
}

func TestRosterDigestIgnoresOrder(t *testing.T) {
	a, b := ID{1}, ID{2}
	if RosterDigest([]ID{a, b}) != RosterDigest([]ID{b, a}) || RosterDigest([]ID{a}) == RosterDigest([]ID{a, a}) {
		t.Error("roster digests")
	}
}

func TestChunksAreChecked(t *testing.T) {
	c := Chunk{Index: 1, Size: 2, Items: []byte("abcd")}
	if c.Len() != 2 || string(c.Item(1)) != "cd" {
		t.Errorf("items %d, %q", c.Len(), c.Item(1))
	}
	digest := [32]byte(mustHex(t, "88d4266fd4e6338d13b845fcf289579d209c897823b9217da3e161936f031589"))
	if err := CheckChunk(c, 1, digest); err != nil {
		t.Error(err)
	}
	if CheckChunk(c, 2, digest) == nil {
		t.Error("another place")
	}
	c.Items = []byte("abce")
	if CheckChunk(c, 1, digest) == nil {
		t.Error("other items")
	}
	if BatchDigest(fill(1), 2, [][32]byte{digest}) == BatchDigest(fill(1), 3, [][32]byte{digest}) {
		t.Error("the count does not matter")
	}
}

func mustHex(t *testing.T, s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A pass for a relay is a function of key, day and nonce.
func TestRelayPass(t *testing.T) {
	key := SessionKey{1, 2, 3}
	pass := key.RelayPass(19_000, [8]byte{9})
	if got := fmt.Sprintf("%x", pass); got != "09000000000000007a29e53265e90ab4" {
		t.Errorf("the pass is %s", got)
	}
	if pass == key.RelayPass(19_001, [8]byte{9}) || pass == (SessionKey{1, 2}).RelayPass(19_000, [8]byte{9}) || pass == key.RelayPass(19_000, [8]byte{8}) {
		t.Error("passes of another day, key or nonce are the same")
	}
}

// A pass is a function of key and round; a report's header shows it.
func TestPass(t *testing.T) {
	key := SessionKey{1, 2, 3}
	pass := key.Pass([32]byte{9})
	if got := fmt.Sprintf("%x", pass); got != "c8fd57bd746798c942282945ec4f4b38" {
		t.Errorf("the pass is %s", got)
	}
	if pass == key.Pass([32]byte{8}) || pass == (SessionKey{1, 2}).Pass([32]byte{9}) {
		t.Error("passes of another round or key are the same")
	}
	b := Encode(Header{Key: [8]byte{7}, Announcement: [32]byte{9}, Pass: pass})
	if want := slices.Concat([]byte{Version, KindReport, 7, 0, 0, 0, 0, 0, 0, 0, 9}, make([]byte, 31), pass[:]); !bytes.Equal(b, want) || len(b) != ReportHeader {
		t.Errorf("%x, want %x", b, want)
	}
	h, sealed, err := DecodeHeader(append(b, 1, 2))
	if err != nil || h.Key != ([8]byte{7}) || h.Announcement != ([32]byte{9}) || h.Pass != pass || !bytes.Equal(sealed, []byte{1, 2}) {
		t.Errorf("%+v %x %v", h, sealed, err)
	}
	if h, _, err := DecodeHeader(append([]byte{2}, b[1:]...)); !errors.Is(err, ErrMalformed) || h != (Header{}) {
		t.Errorf("version 2: %+v, %v", h, err)
	}
	if h, _, err := DecodeHeader(b[:ReportHeader-1]); !errors.Is(err, ErrMalformed) || h != (Header{}) {
		t.Errorf("a torn header: %+v, %v", h, err)
	}
}

// FuzzDecode feeds every decoder: what is accepted has that one encoding.
func FuzzDecode(f *testing.F) {
	all := messages()
	for i, m := range all {
		f.Add(byte(i), m.bytes)
	}
	// A key that somebody has made: under 32 zeros, a point of small order, zeros verify.
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		m := all[int(which)%len(all)]
		_, again, err := m.decode(b)
		if err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v is not ErrMalformed", m.name, err)
		}
		if err == nil && !bytes.Equal(again, b) {
			t.Errorf("%s: %x encodes to %x", m.name, b, again)
		}
		if h, sealed, err := DecodeHeader(b); err == nil {
			if !bytes.Equal(append(Encode(h), sealed...), b) {
				t.Error("report header")
			}
		}
		if got, err := Verify(key, LabelTask, b); err == nil {
			t.Errorf("verified %x", got)
		}
	})
}

func ExampleSign() {
	private := ed25519.NewKeyFromSeed(make([]byte, 32))
	signed := Sign(private, LabelTask, []byte("hello"))
	message, err := Verify(private.Public().(ed25519.PublicKey), LabelTask, signed)
	fmt.Println(string(message), err)
	// Output: hello <nil>
}
