package wire

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func provedTask(t *testing.T) Task {
	t.Helper()
	for _, m := range messages() {
		if m.name == "task-proofs" {
			return m.value.(Task)
		}
	}
	t.Fatal("no task with proofs")
	return Task{}
}

// A task with proofs is refused by programs that know none, and by this one if it says anything
// that no such task says.
func TestTasksWithProofs(t *testing.T) {
	task := provedTask(t)
	b := Encode(task)
	c := codec{b: b, reads: true}
	var old Task
	c.head(KindTask)
	old.fields(&c)
	known := slices.DeleteFunc(old.parts(), func(p part) bool { return p.tag == tagProofs })
	if c.readParts(known); !errors.Is(c.err, ErrMalformed) || !strings.Contains(c.err.Error(), "part 7, unknown") {
		t.Errorf("a program that knows no proofs reads %+v: %v", old, c.err)
	}
	for want, change := range map[string]func(*Sum){
		`noise by ""`:       func(s *Sum) { s.NoiseBy = "" },
		`noise by "client"`: func(s *Sum) { s.NoiseBy = "client" },
		`proofs "prio"`:     func(s *Sum) { s.Proofs = "prio" },
		"0 steps":           func(s *Sum) { s.Steps = 0 },
		"steps = -1":        func(s *Sum) { s.Steps = -1 },
		"norm bound 32767":  func(s *Sum) { s.Bound = 1<<15 - 1 },
		"variance 0":        func(s *Sum) { s.Variance = 0 },
	} {
		bad := task
		change(&bad.Mechanism.Sum)
		if _, err := Decode[Task](Encode(bad)); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	without := task
	without.Mechanism.Sum.Proofs = "" // protocol/mechanism refuses it over a network
	if _, err := Decode[Task](Encode(without)); err != nil || without.Mechanism.Sum.Proved() || !task.Mechanism.Sum.Proved() {
		t.Error(err)
	}
}

func TestProofKeysAndMessagesAreSet(t *testing.T) {
	if _, err := Decode[ProofKey](Encode(ProofKey{Announcement: fill(1)})); !errors.Is(err, ErrMalformed) {
		t.Errorf("a key that is not set: %v", err)
	}
	if _, err := Decode[Proofs](Encode(Proofs{Announcement: fill(1)})); !errors.Is(err, ErrMalformed) {
		t.Errorf("proofs without a message: %v", err)
	}
}

func TestVerifyKeysDoNotPrint(t *testing.T) {
	k := ProofKey{Key: VerifyKey(bytes.Repeat([]byte("K"), 16))}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q"} {
		if text := fmt.Sprintf(format, k) + fmt.Sprintf(format, k.Key); strings.Contains(text, "KKK") || strings.Contains(text, "4b4b") || strings.Contains(text, "75 75") || strings.Contains(text, "0x4b, 0x4b") {
			t.Errorf("%s: %s", format, text)
		}
	}
}

// Reasons are written in their order, so that a new one comes last: earlier words on rounds stay
// what they are.
func TestNewReasonsComeLast(t *testing.T) {
	const before = "malformed wrong-size wrong-key unknown-round closed not-enrolled bad-signature expired not-drawn duplicate " +
		"second-report too-many unavailable out-of-range excluded refused"
	if got := strings.Trim(fmt.Sprint(Reasons()), "[]"); !strings.HasPrefix(got, before+" unequal bad-proof") {
		t.Error(got)
	}
}
