package token

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cloudflare/circl/blindsign/blindrsa"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// epoch is made once: keys are dear. 2 rounds of 2 messages.
var epoch = sync.OnceValues(func() (*Issuer, error) { return Generate(context.Background(), wire.ID{1}, wire.ID{2}, 2, 2, 2) })

func issuer(t testing.TB) (*Issuer, *Keys) {
	t.Helper()
	i, err := epoch()
	if err != nil {
		t.Fatal(err)
	}
	k, err := NewKeys(i.Keys())
	if err != nil {
		t.Fatal(err)
	}
	return i, k
}

// tokens are those of one client.
func tokens(t testing.TB, i *Issuer, k *Keys, task [32]byte, seed byte) [][wire.TokenBytes]byte {
	t.Helper()
	p := NewPending(k, task, [32]byte{seed})
	_, body, err := p.Request(wire.ID{seed}, 0)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := i.Sign(t.Context(), 0, body)
	if err != nil {
		t.Fatal(err)
	}
	flat, err := p.Finish(nil, 0, answer)
	if err != nil {
		t.Fatal(err)
	}
	var out [][wire.TokenBytes]byte
	for ; len(flat) > 0; flat = flat[wire.TokenBytes:] {
		out = append(out, [wire.TokenBytes]byte(flat))
	}
	return out
}

// A token holds for its task, round and message, and for nothing else.
func TestTokensHoldForOneUse(t *testing.T) {
	i, k := issuer(t)
	task := [32]byte{7}
	mine, others := tokens(t, i, k, task, 1), tokens(t, i, k, task, 2)
	if len(mine) != 4 {
		t.Fatalf("%d tokens, want 4", len(mine))
	}
	seen := map[nonce]bool{}
	for at := range mine {
		seen[nonceOf(&mine[at])], seen[nonceOf(&others[at])] = true, true
		for round := int64(0); round <= 3; round++ {
			for index := int64(-1); index <= 2; index++ {
				want := int64(at) == (round-1)*2+index && index >= 0 && index < 2
				if k.Verify(task, round, index, &mine[at]) != want || k.Verify(task, round, index, &others[at]) != want {
					t.Errorf("token %d in round %d, message %d: want %t", at, round, index, want)
				}
			}
		}
		if k.Verify([32]byte{8}, int64(at/2)+1, int64(at%2), &mine[at]) {
			t.Errorf("token %d holds for another task", at)
		}
		// Any change makes it worthless.
		for _, place := range []int{0, nonceBytes - 1, nonceBytes, wire.TokenBytes - 1} {
			bad := mine[at]
			bad[place] ^= 1
			if k.Verify(task, int64(at/2)+1, int64(at%2), &bad) {
				t.Errorf("token %d holds with byte %d changed", at, place)
			}
		}
	}
	if len(seen) != 8 {
		t.Errorf("%d nonces of 8 tokens", len(seen))
	}
	var none [wire.TokenBytes]byte
	if k.Verify(task, 1, 0, &none) {
		t.Error("a token of zeros holds")
	}
	// Another epoch's keys do not take it.
	other, err := Generate(t.Context(), wire.ID{1}, wire.ID{3}, 1, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	ok, err := NewKeys(other.Keys())
	if err != nil || ok.Verify(task, 1, 0, &mine[0]) {
		t.Errorf("another epoch takes a token: %v", err)
	}
}

// Each grant counts once in a round, whatever the report that it is in.
func TestGrantsCountOnce(t *testing.T) {
	i, k := issuer(t)
	task := [32]byte{7}
	mine, others := tokens(t, i, k, task, 1), tokens(t, i, k, task, 2)
	r := k.Round(task, 1)
	if !r.Valid(0, &mine[0]) || r.Valid(1, &mine[0]) || r.Valid(0, &mine[2]) {
		t.Error("validity")
	}
	if !r.Take(0, &mine[0]) || r.Take(0, &mine[0]) || !r.Take(0, &others[0]) || r.Fewest() != 0 || !r.Take(1, &mine[1]) || r.Fewest() != 1 {
		t.Errorf("takes a grant otherwise than once; %d of the rarest message", r.Fewest())
	}
	if again := k.Round(task, 1); !again.Take(0, &mine[0]) {
		t.Error("the batch opens otherwise the second time")
	}
}

// What a token is, another implementation of RFC 9474 verifies.
func TestTokensAreRFC9474(t *testing.T) {
	i, k := issuer(t)
	task := [32]byte{7}
	mine := tokens(t, i, k, task, 3)
	v, err := blindrsa.NewVerifier(variant, &k.public[1])
	if err != nil {
		t.Fatal(err)
	}
	prepared := append(bytes.Clone(mine[1][:nonceBytes]), message(task, 1)...)
	if err := v.Verify(prepared, mine[1][nonceBytes:]); err != nil {
		t.Error(err)
	}
}

// A client that lost an answer, or ends between, asks for the same again; another seed asks for
// something else.
func TestRequestsRepeat(t *testing.T) {
	i, k := issuer(t)
	task := [32]byte{7}
	request, body, err := NewPending(k, task, [32]byte{9}).Request(wire.ID{9}, 0)
	if err != nil {
		t.Fatal(err)
	}
	again, same, err := NewPending(k, task, [32]byte{9}).Request(wire.ID{9}, 0)
	if err != nil || again != request || !bytes.Equal(body, same) {
		t.Errorf("the same seed asks for %+v, and then for %+v (%v)", request, again, err)
	}
	if request.Count != 4 || request.First != 0 || request.Epoch != i.Keys().Epoch || request.Population != (wire.ID{1}) {
		t.Errorf("request %+v", request)
	}
	other, _, err := NewPending(k, task, [32]byte{10}).Request(wire.ID{9}, 0)
	if err != nil || other.Blinded == request.Blinded {
		t.Errorf("another seed asks for the same: %v", err)
	}
	one, err := i.Sign(t.Context(), 0, body)
	if err != nil {
		t.Fatal(err)
	}
	two, err := i.Sign(t.Context(), 0, body)
	if err != nil || !bytes.Equal(one, two) {
		t.Errorf("the same request gets another answer: %v", err)
	}
	// Blinded messages show nothing of the token: they differ from what is signed, and the
	// registrar's answer from the signature.
	mine := tokens(t, i, k, task, 9)
	if bytes.Contains(one, mine[0][nonceBytes:]) || bytes.Contains(body, mine[0][:nonceBytes]) {
		t.Error("what the registrar sees has the token in it")
	}
}

func TestWrongAnswersAreRefused(t *testing.T) {
	i, k := issuer(t)
	p := NewPending(k, [32]byte{7}, [32]byte{4})
	_, body, err := p.Request(wire.ID{4}, 0)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := i.Sign(t.Context(), 0, body)
	if err != nil {
		t.Fatal(err)
	}
	swapped := append(bytes.Clone(answer[wire.TokenModulus:2*wire.TokenModulus]), answer[:wire.TokenModulus]...)
	changed := bytes.Clone(answer)
	changed[len(changed)-1] ^= 1
	for name, bad := range map[string][]byte{
		"short": answer[:len(answer)-1], "one fewer": answer[wire.TokenModulus:], "none": nil, "long": append(bytes.Clone(answer), answer...),
		"swapped": append(swapped, answer[2*wire.TokenModulus:]...), "changed": changed, "zeros": make([]byte, len(answer)),
	} {
		if got, err := p.Finish(nil, 0, bad); err == nil {
			t.Errorf("%s: %d bytes of tokens", name, len(got))
		}
	}
	for _, first := range []int{-1, 4, 256} {
		if _, _, err := p.Request(wire.ID{4}, first); err == nil {
			t.Errorf("a request from %d on", first)
		}
		if _, err := p.Finish(nil, first, answer); err == nil {
			t.Errorf("an answer from %d on", first)
		}
	}
	for name, bad := range map[string]struct {
		first   int64
		blinded []byte
	}{"nothing": {0, nil}, "half": {0, body[:100]}, "beyond": {1, body}, "below": {-1, body}, "too large": {0, bytes.Repeat([]byte{255}, wire.TokenModulus)}} {
		if _, err := i.Sign(t.Context(), bad.first, bad.blinded); err == nil {
			t.Errorf("%s: signed", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := i.Sign(ctx, 0, body); !errors.Is(err, context.Canceled) {
		t.Errorf("signing went on: %v", err)
	}
	if _, err := Generate(ctx, wire.ID{1}, wire.ID{3}, 300, 1, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("making keys went on: %v", err)
	}
}

// A key for one client, or keys that do not fit the task, are refused.
func TestKeysAreTheTasks(t *testing.T) {
	i, _ := issuer(t)
	task := wire.Task{Population: wire.ID{1}, Participation: dp.Once, Rounds: 2, Messages: 2}
	task.Tokens = wire.Tokens{Epoch: i.Keys().Epoch, Keys: wire.Digest(i.Keys())}
	if _, err := ForTask(i.Keys(), task); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*wire.TokenKeys, *wire.Task){
		"not those":          func(k *wire.TokenKeys, _ *wire.Task) { k.Moduli[0] = k.Moduli[1] },
		"not those that":     func(_ *wire.TokenKeys, t *wire.Task) { t.Tokens.Epoch[0]++ },
		"another population": func(_ *wire.TokenKeys, t *wire.Task) { t.Population[0]++ },
		"keys for 2 rounds":  func(_ *wire.TokenKeys, t *wire.Task) { t.Rounds = 3 },
		"of 2 messages, the": func(_ *wire.TokenKeys, t *wire.Task) { t.Messages = 0 },
		"up to 14 of 2":      func(_ *wire.TokenKeys, t *wire.Task) { t.Participation = dp.All },
		"there twice": func(k *wire.TokenKeys, t *wire.Task) {
			k.Moduli[0] = k.Moduli[1]
			t.Tokens.Keys = wire.Digest(*k)
		},
		"not an RSA key": func(k *wire.TokenKeys, t *wire.Task) {
			k.Moduli[0][0] = 0
			t.Tokens.Keys = wire.Digest(*k)
		},
		"key 1 is not": func(k *wire.TokenKeys, t *wire.Task) {
			k.Moduli[1][wire.TokenModulus-1]--
			t.Tokens.Keys = wire.Digest(*k)
		},
	} {
		k, other := i.Keys(), task
		k.Moduli = bytes2(k.Moduli)
		change(&k, &other)
		if _, err := ForTask(k, other); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for _, bad := range [][2]int64{{0, 1}, {1, 5000}, {1 << 14, 2}, {1 << 62, 1 << 12}} {
		if _, err := Generate(t.Context(), wire.ID{1}, wire.ID{3}, bad[0], bad[1], 1); err == nil {
			t.Errorf("keys for %d rounds of %d", bad[0], bad[1])
		}
	}
}

func bytes2(m [][wire.TokenModulus]byte) [][wire.TokenModulus]byte {
	return append([][wire.TokenModulus]byte(nil), m...)
}

func TestSecretsAreStored(t *testing.T) {
	i, _ := issuer(t)
	b := i.Secret()
	again, err := ParseSecret(b)
	if err != nil || wire.Digest(again.Keys()) != wire.Digest(i.Keys()) {
		t.Fatalf("%v", err)
	}
	if text := fmt.Sprintf("%v %+v %#v", i, i, i); strings.Count(text, "tokens of epoch") != 3 || len(text) > 200 {
		t.Errorf("an issuer prints %q", text)
	}
	_, body, err := NewPending(must(NewKeys(i.Keys())), [32]byte{7}, [32]byte{5}).Request(wire.ID{5}, 0)
	if err != nil {
		t.Fatal(err)
	}
	one, err := i.Sign(t.Context(), 0, body)
	if err != nil {
		t.Fatal(err)
	}
	if two, err := again.Sign(t.Context(), 0, body); err != nil || !bytes.Equal(one, two) {
		t.Errorf("signs otherwise after it was stored: %v", err)
	}
	for n := range len(b) {
		if n%97 == 0 || n > len(b)-3 || n < 100 {
			if _, err := ParseSecret(b[:n]); err == nil && n < len(b) {
				// Whole keys may be missing at the end, if the rest still divides.
				if k, _ := ParseSecret(b[:n]); k != nil && len(k.secret) == len(i.secret) {
					t.Errorf("%d of %d bytes are taken for all", n, len(b))
				}
			}
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func FuzzParseSecret(f *testing.F) {
	i, err := epoch()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(i.Secret())
	f.Add([]byte(secretHeader))
	f.Fuzz(func(t *testing.T, b []byte) {
		if i, err := ParseSecret(b); err == nil && len(i.secret) == 0 {
			t.Error("an issuer without keys")
		}
	})
}

func BenchmarkToken(b *testing.B) {
	i, k := issuer(b)
	p := NewPending(k, [32]byte{7}, [32]byte{6})
	_, body, err := p.Request(wire.ID{6}, 0)
	if err != nil {
		b.Fatal(err)
	}
	answer, err := i.Sign(b.Context(), 0, body)
	if err != nil {
		b.Fatal(err)
	}
	flat, err := p.Finish(nil, 0, answer)
	if err != nil {
		b.Fatal(err)
	}
	of := float64(len(answer) / wire.TokenModulus)
	one := [wire.TokenBytes]byte(flat)
	for _, c := range []struct {
		name string
		each float64
		f    func() error
	}{
		{"blind", of, func() error { _, _, err := p.Request(wire.ID{6}, 0); return err }},
		{"sign", 1, func() error { _, err := i.Sign(context.Background(), 0, body[:wire.TokenModulus]); return err }},
		{"unblind", of, func() error { _, err := p.Finish(nil, 0, answer); return err }},
		{"verify", 1, func() error {
			if !k.Verify([32]byte{7}, 1, 0, &one) {
				return errors.New("does not hold")
			}
			return nil
		}},
		{"key", 1, func() error { _, err := Generate(context.Background(), wire.ID{1}, wire.ID{3}, 1, 1, 1); return err }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if err := c.f(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/c.each, "µs/token")
		})
	}
}
