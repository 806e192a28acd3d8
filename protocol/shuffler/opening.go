package shuffler

import (
	"fmt"
	"slices"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Refusal is an error that is sent to the other side: a reason from the closed set, and a
// detail that holds no client's data.
type Refusal struct {
	Reason wire.Reason
	Detail string
}

func (r *Refusal) Error() string { return "shuffler: " + string(r.Reason) + ": " + r.Detail }

// Refuse makes a Refusal.
func Refuse(reason wire.Reason, format string, args ...any) error {
	return &Refusal{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// Limits are the operator's limits on a round.
type Limits struct {
	// MinDuration and MaxDuration bound the time from now to the deadline.
	MinDuration, MaxDuration time.Duration
	// MaxReport bounds a report's parts together, in bytes.
	MaxReport int64
}

// opensAhead is how far the coordinator's clock may be ahead of the shuffler's when a round opens. Clients
// whose policy says nothing else decline what is further ahead, and a round that all have
// declined would stay open until its deadline, hours later.
const opensAhead = 2 * time.Minute

// CountsOn returns how many clients of a round's roster must still be enrolled when the round
// closes, or it is void: the number by which its charge counts on the chance that a client is in
// it (protocol/coordinator/absence.md). It is 0 in Once, whose charge counts on no chance.
func CountsOn(ann wire.Announcement) int64 {
	switch {
	case ann.Participation == dp.Once:
		return 0
	case ann.MinClients > 0:
		return ann.MinClients
	}
	return ann.Population
}

// CheckOpening refuses a round that the shuffler must not open: one that is not above the
// last round of its task, has another n than the enrolment, would close with fewer reports
// than the floor, takes too little or too much time, or seals to an expired key. The
// coordinator cannot change these values later, because reports are bound to the
// announcement.
func CheckOpening(ann wire.Announcement, e wire.Enrolment, last int64, now time.Time, l Limits) error {
	deadline := time.UnixMilli(ann.Deadline)
	switch {
	case ann.Enrolment != wire.Digest(e):
		return Refuse(wire.NotEnrolled, "the enrolment is another, of serial %d", e.Serial)
	case now.Unix() < e.From || now.Unix() >= e.To:
		return Refuse(wire.NotEnrolled, "the enrolment of serial %d holds no more", e.Serial)
	case ann.Population != e.Clients:
		return Refuse(wire.NotEnrolled, "n = %d, enrolled are %d", ann.Population, e.Clients)
	case ann.MinClients > ann.Population:
		return Refuse(wire.NotEnrolled, "n = %d, the task counts on %d", ann.Population, ann.MinClients)
	case ann.MinReports < e.MinReports:
		return Refuse(wire.Refused, "n-min = %d is below the shuffler's %d", ann.MinReports, e.MinReports)
	case ann.Round <= last:
		return Refuse(wire.Closed, "round %d is not above the task's last, %d", ann.Round, last)
	case deadline.Sub(now) < l.MinDuration || deadline.Sub(now) > l.MaxDuration:
		return Refuse(wire.Refused, "the deadline must lie %v to %v ahead", l.MinDuration, l.MaxDuration)
	case time.UnixMilli(ann.Opens).Sub(now) > opensAhead:
		return Refuse(wire.Refused, "it opens in %v, at most %v are taken: are the clocks right?", time.UnixMilli(ann.Opens).Sub(now).Round(time.Second), opensAhead)
	case time.UnixMilli(ann.Opens).After(deadline.Add(-l.MinDuration)):
		return Refuse(wire.Refused, "open for less than %v", l.MinDuration)
	case ann.ReportBytes < 1:
		return Refuse(wire.Malformed, "parts of %d bytes", ann.ReportBytes)
	case ann.PartBytes()+ann.ShareBytes > l.MaxReport:
		return Refuse(wire.Refused, "reports of %d bytes, at most %d are taken", ann.PartBytes()+ann.ShareBytes, l.MaxReport)
	case ann.PerClient() > 1 && ann.ShareBytes != 0:
		return Refuse(wire.Malformed, "%d messages of each client, and shares", ann.PerClient())
	case (ann.ShareBytes == 0) != ann.Aggregator.None():
		return Refuse(wire.Malformed, "shares of %d bytes without their reader, or the other way round", ann.ShareBytes)
	}
	if err := ann.Coordinator.Valid(deadline); err != nil {
		return Refuse(wire.WrongKey, "the coordinator's key does not last until the deadline")
	}
	if !ann.Aggregator.None() {
		if err := ann.Aggregator.Valid(deadline); err != nil {
			return Refuse(wire.WrongKey, "the aggregator's key does not last until the deadline")
		}
		// With a key of its own in this place the coordinator would see both shares.
		if !slices.ContainsFunc(e.Aggregator, func(k wire.Key) bool { return k.ID() == ann.Aggregator.ID() && k.Expires == ann.Aggregator.Expires }) {
			return Refuse(wire.WrongKey, "the aggregator's key is not in the enrolment")
		}
	}
	if !slices.ContainsFunc(e.Shuffler, func(k wire.Key) bool { return k.Valid(deadline) == nil }) {
		return Refuse(wire.WrongKey, "no key of the shuffler lasts until the deadline")
	}
	if ann.Participation == dp.Once {
		blocks, err := blocksOf(ann)
		if err != nil {
			return Refuse(wire.Malformed, "%d blocks of %d clients", ann.PerEpoch, ann.Population)
		}
		if blocks.Smallest < ann.MinReports {
			return Refuse(wire.Malformed, "blocks of %d clients, n-min is %d", blocks.Smallest, ann.MinReports)
		}
	}
	return nil
}
