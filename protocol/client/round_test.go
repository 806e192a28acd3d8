package client

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/wire"
)

func plain(t *testing.T) randomizer.Mechanism {
	t.Helper()
	m, err := randomizer.NewPlain(randomizer.Config{Dim: 2, Radius: 1})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestReportIsClippedAsAsked(t *testing.T) {
	const one = 1 << 24 // of a Plain report, in units of the radius
	for _, c := range []struct {
		config Config
		want   [2]float64
	}{
		{Config{ClipMode: ClipNorm, Clip: 1, Norm: 2}, [2]float64{.6, .8}},
		{Config{ClipMode: ClipNorm, Clip: .5, Norm: 1}, [2]float64{.5 * 3 / 7, .5 * 4 / 7}},
		{Config{ClipMode: ClipNorm, Clip: 1, Norm: math.Inf(1)}, [2]float64{.75, 1}},
		{Config{ClipMode: ClipCoordinate, Clip: .9, Norm: math.Inf(1)}, [2]float64{.9, .9}},
	} {
		c.config.Mechanism = plain(t)
		cl, err := New(c.config)
		if err != nil {
			t.Fatal(err)
		}
		r := c.config.Mechanism.NewReport()
		cl.Report(rng.Replay(1), []float32{3, 4}, r)
		for j, want := range c.want {
			if got := float64(r.Value[j]) / one; math.Abs(got-want) > 1e-6 {
				t.Errorf("%+v: coordinate %d is %v, want %v", c.config, j, got, want)
			}
		}
	}
}

func TestReportNeverFails(t *testing.T) {
	m, err := randomizer.New(randomizer.PrivUnit, randomizer.Config{Dim: 2, Radius: 1, Eps0: 1})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := New(Config{Mechanism: m, ClipMode: ClipNorm, Clip: 1, Norm: 2})
	if err != nil {
		t.Fatal(err)
	}
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, g := range [][]float32{{nan, nan}, {inf, -inf}, {0, 0}, {inf, nan}, {math.MaxFloat32, math.MaxFloat32}} {
		r := m.NewReport()
		cl.Report(rng.Replay(2), g, r)
		if err := m.Check(r); err != nil {
			t.Errorf("report of %v: %v", g, err)
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	m := plain(t)
	for _, c := range []Config{
		{ClipMode: ClipNorm, Clip: 1, Norm: 2},
		{Mechanism: m, Clip: 1, Norm: 2},
		{Mechanism: m, ClipMode: "other", Clip: 1, Norm: 2},
		{Mechanism: m, ClipMode: ClipNorm, Norm: 2},
		{Mechanism: m, ClipMode: ClipNorm, Clip: math.NaN(), Norm: 2},
		{Mechanism: m, ClipMode: ClipNorm, Clip: math.Inf(1), Norm: 2},
		{Mechanism: m, ClipMode: ClipNorm, Clip: 1, Norm: 3},
		{Mechanism: m, ClipMode: ClipNorm, Clip: 1, Norm: math.NaN()},
		{Mechanism: m, ClipMode: ClipCoordinate, Clip: 1, Norm: 2},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("accepted %+v", c)
		}
	}
}

func TestClientTakesPartInWhatItAgreedTo(t *testing.T) {
	m, err := randomizer.New(randomizer.PrivUnit, randomizer.Config{Dim: 2, Radius: 1, Eps0: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []randomizer.Mechanism{m, plain(t)} {
		c, err := New(Config{Mechanism: m, ClipMode: ClipNorm, Clip: 1, Norm: 2})
		if err != nil {
			t.Fatal(err)
		}
		good := wire.Announcement{Round: 3, Randomizer: m.Facts().Name, Clip: 1}
		if r, ok := m.(randomizer.Randomizer); ok {
			good.Eps0 = r.Event().Eps0
		}
		if err := c.Check(good); err != nil {
			t.Errorf("%s: %v", m.Facts().Name, err)
		}
		for name, spoil := range map[string]func(*wire.Announcement){
			"mechanism":   func(a *wire.Announcement) { a.Randomizer = "rinf" },
			"larger eps0": func(a *wire.Announcement) { a.Eps0 += 1e-9 },
			"less eps0":   func(a *wire.Announcement) { a.Eps0 -= 1e-9 },
			"NaN":         func(a *wire.Announcement) { a.Eps0 = math.NaN() },
			"clip":        func(a *wire.Announcement) { a.Clip = 2 },
		} {
			a := good
			spoil(&a)
			if c.Check(a) == nil {
				t.Errorf("%s: agreed to another %s", m.Facts().Name, name)
			}
		}
	}
}

// 1e5 coins at .3: sd 145; ±6 sd fail with probability 2e-9.
func TestCheckInIsTheRate(t *testing.T) {
	src, heads := rng.Replay(3), 0
	for range 100000 {
		if CheckIn(src, .3) {
			heads++
		}
	}
	if heads < 30000-870 || heads > 30000+870 {
		t.Errorf("%d of 100000 coins, want about 30000", heads)
	}
	for _, c := range []struct {
		rate float64
		want bool
	}{{0, false}, {1, true}} {
		if CheckIn(src, c.rate) != c.want {
			t.Errorf("rate %v gave %v", c.rate, !c.want)
		}
	}
}
