package train

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/simulate"
)

// A task of several messages is one that clients, coordinator and a restart read the
// same; a task of one message does not say so.
func TestTaskOfSeveralMessages(t *testing.T) {
	path := smallCSV(t, 80)
	tasks := map[int64]*Setup{}
	for _, m := range []int64{0, 1, 4} {
		c := csvConfig(path)
		c.Messages = m
		made, err := NewTask(context.Background(), "test", c, enrolled)
		if err != nil {
			t.Fatal(err)
		}
		tasks[m] = made
		again, err := OpenTask(context.Background(), made.Wire, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		co, err := again.Coordinator()
		if err != nil || co.Messages != m || wire.Digest(again.Wire) != wire.Digest(made.Wire) || again.Wire.PerClient() != max(1, m) {
			t.Errorf("%d messages: opened as %d, coordinated as %d, %v", m, again.Wire.PerClient(), co.Messages, err)
		}
		read, err := ReadTask(made.Wire)
		if err != nil || read.Config.Messages != m {
			t.Errorf("%d messages: read as %d, %v", m, read.Config.Messages, err)
		}
	}
	if tasks[0].Wire.Messages != 0 || strings.Contains(string(tasks[0].Wire.Config), "messages") {
		t.Error("a task of one message says so")
	}
}

// Several messages of a run are charged as so many rounds, over an interruption too; the summary
// says what they promise together, and planned is what is charged.
func TestRunOfSeveralMessages(t *testing.T) {
	path := smallCSV(t, 80)
	c := csvConfig(path)
	c.Messages, c.Rounds, c.Eps0, c.CheckpointEvery, c.Population = 3, 6, 1, 2, 400
	whole := prepared(t, c)
	want, err := whole.Train(t.Context(), Observer{})
	if err != nil {
		t.Fatal(err)
	}
	// What a message promises is a little more than the eps0 that was asked for.
	each := whole.Mechanism.(randomizer.Randomizer).Event().Eps0
	if want.Messages != 3 || !(each > 1 && want.LocalEpsilon >= 3*each && want.LocalEpsilon < 3.001) {
		t.Errorf("summary of %d messages of %v, %v together", want.Messages, each, want.LocalEpsilon)
	}
	if one, all := whole.LocalEps(); one != each || all != want.LocalEpsilon {
		t.Errorf("one message %v, all %v", one, all)
	}
	planned, err := whole.Planned(t.Context())
	if err != nil || math.Abs(planned.Eps-float64(want.Epsilon)) > 1e-12 {
		t.Errorf("planned %v, charged %v, %v", planned.Eps, want.Epsilon, err)
	}
	single := c
	single.Messages, single.Rounds = 0, 18
	if b, err := prepared(t, single).Planned(t.Context()); err != nil || b.Eps != planned.Eps {
		t.Errorf("six rounds of three messages cost %v, 18 rounds %v, %v", planned.Eps, b.Eps, err)
	}
	for _, e := range whole.Charged {
		if e.Times != 3 {
			t.Errorf("charged %+v", e)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cut := prepared(t, c)
	_, err = cut.Train(ctx, Observer{Round: func(r simulate.Result) {
		if r.Reports != 400 {
			t.Errorf("%d clients", r.Reports)
		}
		if r.Round == 3 {
			cancel()
		}
	}})
	if !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(cut.Dir, ConfigFile))
	if err != nil || !strings.Contains(string(text), "messages: 3\n") {
		t.Errorf("configuration %s, %v", text, err)
	}
	again, err := Resume(t.Context(), cut.Dir, func(*Config) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Train(t.Context(), Observer{}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(again.Theta(), whole.Theta()) || !slices.Equal(again.Charged, whole.Charged) {
		t.Error("a resumed run is another one")
	}
}

// More messages have less noise at the same budget, by the tuned rate as by a plan.
func TestMessagesBuyNoise(t *testing.T) {
	noise := func(c Config) float64 {
		c.Population, c.Epsilon, c.Rounds, c.Participation = 20000, .5, 20, dp.All
		c = resolved(t, c)
		c.Clip = .2
		m, _, err := c.newMechanism(50)
		if err != nil {
			t.Fatal(err)
		}
		return c.clientMSE(m)
	}
	one, eight := Default(), Default()
	eight.Messages = 8
	if a, b := noise(one), noise(eight); !(b < .8*a) {
		t.Errorf("eight messages have an error of %v, one has %v", b, a)
	}
}

func TestMessagesAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"trust vector-sum": func(c *Config) { c.Trust, c.Epsilon, c.Messages = "vector-sum", 1, 2 },
		"trust none":       func(c *Config) { c.Trust, c.Messages = "none", 2 },
		"4097":             func(c *Config) { c.Messages = 4097 },
		"1000000000":       func(c *Config) { c.Messages = 1e9 },
	} {
		c := Default()
		change(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
