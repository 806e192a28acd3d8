package client

import (
	"fmt"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// CheckClosed compares the shuffler's signed word on a round with the round's announcement and
// with taken, the number of this client's reports that the shuffler said it has taken. The error
// says what does not fit: shuffler or coordinator do not do what they say.
func CheckClosed(ann wire.Announcement, c wire.RoundClosed, taken int64) error {
	most := ann.Population
	if ann.Participation == dp.Sampled {
		most = ann.Sample
	}
	switch {
	case c.Announcement != wire.Digest(ann) || c.Round != ann.Round:
		return fmt.Errorf("the word is on round %d, announcement %x", c.Round, c.Announcement[:4])
	case c.Void && taken >= ann.MinReports:
		return fmt.Errorf("the round is called void, and the shuffler took %d reports of this process alone; n-min is %d", taken, ann.MinReports)
	case c.Void:
		return nil
	case c.Reports < ann.MinReports || c.Reports > most:
		return fmt.Errorf("%d reports, must lie between n-min = %d and %d", c.Reports, ann.MinReports, most)
	case c.Reports < taken:
		return fmt.Errorf("%d reports, and the shuffler took %d of this process alone", c.Reports, taken)
	case c.Chunks < 1 || c.Chunks > c.Reports*ann.PerClient():
		return fmt.Errorf("%d chunks of %d reports", c.Chunks, c.Reports)
	case (ann.ShareBytes != 0) != (c.Shares != [32]byte{}) || c.Digest == [32]byte{}:
		return fmt.Errorf("digest %x, shares %x, for shares of %d bytes", c.Digest[:4], c.Shares[:4], ann.ShareBytes)
	}
	return nil
}

// CheckReceipts compares the signed head of a list of receipts with the announcement and the
// shuffler's word on the round, which CheckClosed has checked. The list itself is read after it.
func CheckReceipts(ann wire.Announcement, c wire.RoundClosed, head wire.Receipts) error {
	all := c.Reports * ann.PerClient()
	switch {
	case head.Announcement != wire.Digest(ann):
		return fmt.Errorf("the receipts are those of announcement %x", head.Announcement[:4])
	case head.Closed != wire.Digest(c):
		return fmt.Errorf("the receipts are listed for another word on the round")
	case head.Whole > all || head.Half > all || head.Unopened > all || head.Len()+head.Unopened != all:
		return fmt.Errorf("%d and %d receipts and %d messages not opened, of %d messages", head.Whole, head.Half, head.Unopened, all)
	case head.Half > 0 && ann.ShareBytes == 0:
		return fmt.Errorf("%d receipts of halves, and reports have one part", head.Half)
	}
	return nil
}

// AlwaysReceipts bounds the lists of receipts that every client reads, in bytes. Of larger ones
// each client reads one in ReceiptsCoin.
const (
	AlwaysReceipts = 1 << 20
	ReceiptsCoin   = 20
)

// ReceiptBytes returns how large a round's list of receipts is expected to be. It depends on the
// announcement only, so that all clients know it before they report.
func ReceiptBytes(ann wire.Announcement) int64 {
	reports := float64(ann.Population)
	switch ann.Participation {
	case dp.Sampled:
		reports = float64(ann.Sample)
	case dp.CheckIn:
		reports *= ann.Gamma
	case dp.Once:
		reports /= float64(max(1, ann.PerEpoch))
	}
	return int64(min(reports*float64(ann.PerClient())*float64(len(wire.ID{})), 1<<60))
}
