package shuffler

import (
	"errors"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

func TestOpeningIsChecked(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	key := func(b byte, left time.Duration) wire.Key {
		return wire.Key{Suite: wire.X25519, Public: []byte{b, 32: 0}, Expires: now.Add(left).Unix()}
	}
	limits := Limits{MinDuration: time.Second, MaxDuration: time.Hour, MaxReport: 1000}
	enrolment := wire.Enrolment{Serial: 3, Clients: 100, MinReports: 10, Shuffler: []wire.Key{key(1, 2*time.Minute), key(2, time.Hour)},
		Aggregator: []wire.Key{key(3, time.Hour)}, From: now.Unix() - 10, To: now.Unix() + 1000}
	good := func() wire.Announcement {
		return wire.Announcement{Round: 5, Participation: dp.All, Population: 100, MinReports: 10, Enrolment: wire.Digest(enrolment),
			Opens: now.UnixMilli(), Deadline: now.Add(time.Minute).UnixMilli(), Coordinator: key(4, time.Hour), ReportBytes: 100}
	}
	check := func(f func(*wire.Announcement), last int64) error {
		a := good()
		f(&a)
		return CheckOpening(a, enrolment, last, now, limits)
	}
	if err := check(func(*wire.Announcement) {}, 4); err != nil {
		t.Fatal(err)
	}
	shares := func(a *wire.Announcement) { a.Aggregator, a.ShareBytes = key(3, time.Hour), 200 }
	if err := check(shares, 0); err != nil {
		t.Fatal(err)
	}
	once := func(blocks int64) func(*wire.Announcement) {
		return func(a *wire.Announcement) { a.Participation, a.PerEpoch = dp.Once, blocks }
	}
	if err := check(once(10), 0); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*wire.Announcement)
		last   int64
		want   wire.Reason
	}{
		"another enrolment":     {func(a *wire.Announcement) { a.Enrolment[0]++ }, 0, wire.NotEnrolled},
		"n overstated":          {func(a *wire.Announcement) { a.Population++ }, 0, wire.NotEnrolled},
		"n understated":         {func(a *wire.Announcement) { a.Population-- }, 0, wire.NotEnrolled},
		"n-min below the floor": {func(a *wire.Announcement) { a.MinReports = 9 }, 0, wire.Refused},
		"the last round again":  {func(*wire.Announcement) {}, 5, wire.Closed},
		"an old round":          {func(*wire.Announcement) {}, 9, wire.Closed},
		"too short":             {func(a *wire.Announcement) { a.Deadline = now.Add(900 * time.Millisecond).UnixMilli() }, 0, wire.Refused},
		"over already":          {func(a *wire.Announcement) { a.Deadline = now.UnixMilli() - 1 }, 0, wire.Refused},
		"too long":              {func(a *wire.Announcement) { a.Deadline = now.Add(61 * time.Minute).UnixMilli() }, 0, wire.Refused},
		"a fast clock":          {func(a *wire.Announcement) { a.Opens += 121_000; a.Deadline += 121_000 }, 0, wire.Refused},
		"opens at the end":      {func(a *wire.Announcement) { a.Opens = a.Deadline - 500 }, 0, wire.Refused},
		"no parts":              {func(a *wire.Announcement) { a.ReportBytes = 0 }, 0, wire.Malformed},
		"too large":             {func(a *wire.Announcement) { a.ReportBytes = 1001 }, 0, wire.Refused},
		"no coordinator's key":  {func(a *wire.Announcement) { a.Coordinator = wire.Key{} }, 0, wire.WrongKey},
		"its key expires":       {func(a *wire.Announcement) { a.Coordinator = key(4, 30*time.Second) }, 0, wire.WrongKey},
		"a share for nobody":    {func(a *wire.Announcement) { a.ShareBytes = 5 }, 0, wire.Malformed},
		"a reader of no share":  {func(a *wire.Announcement) { shares(a); a.ShareBytes = 0 }, 0, wire.Malformed},
		"another aggregator":    {func(a *wire.Announcement) { shares(a); a.Aggregator = key(4, time.Hour) }, 0, wire.WrongKey},
		"aggregator expires":    {func(a *wire.Announcement) { shares(a); a.Aggregator = key(3, time.Second) }, 0, wire.WrongKey},
		"blocks too small":      {once(11), 0, wire.Malformed},
		"no blocks":             {once(0), 0, wire.Malformed},
	} {
		err := check(c.change, c.last)
		var r *Refusal
		if !errors.As(err, &r) || r.Reason != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	enrolment.To = now.Unix()
	if err := check(func(*wire.Announcement) {}, 0); err == nil {
		t.Error("opened under an enrolment that is over")
	}
	enrolment.To += 1000
	enrolment.Shuffler = enrolment.Shuffler[:1]
	if err := check(func(a *wire.Announcement) { a.Deadline = now.Add(3 * time.Minute).UnixMilli() }, 0); err == nil {
		t.Error("opened although no key of the shuffler lasts")
	}
}
