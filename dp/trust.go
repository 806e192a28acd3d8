package dp

import (
	"fmt"
	"strings"
)

// Trust is a mode of trust: what hides a client's report. Flags, files, events and messages
// contain its text. The table modes says what each mode means; ask a Trust's methods instead
// of comparing names. A text that is no mode counts as protecting, but no event may have it.
type Trust string

const (
	// Shuffle: a round's reports are seen in a uniformly random order, without senders.
	Shuffle Trust = "shuffle"
	// Local: every report is seen with its sender, and stands alone.
	Local Trust = "local"
	// VectorSum protects as Distributed does. The two differ in their defaults only, and
	// events have Distributed for both.
	VectorSum Trust = "vector-sum"
	// Distributed: nobody sees more than the sum of a round's reports, nor, for Sampled
	// and CheckIn, whose reports are in it. A Round's Reports counts those whose noise is
	// in the released sum: a client that adds less noise does not count, and a report
	// that is taken out takes its noise along.
	Distributed Trust = "distributed"
	// Central: a trusted curator sees what clients hold, and adds the noise.
	Central Trust = "central"
	// None: every report is seen, without noise.
	None Trust = "none"
)

// DefaultTrust is the mode if none is chosen.
const DefaultTrust = Shuffle

// view says what the receiver of a round's result sees of its reports.
type view int

const (
	unknown view = iota
	permuted
	named
	summed
	curated
	exact
)

// mode is the meaning of a Trust.
type mode struct {
	trust         Trust
	seen          view
	recorded      Trust         // in events, tasks, announcements and pages
	participation Participation // default
	noise         string        // default of a sum, as package vecsum names it
	help          string        // half a sentence on what hides a report
}

// modes are all modes, in the order in which lists show them.
var modes = [...]mode{
	{Shuffle, permuted, Shuffle, All, "", "a random order of a round's reports"},
	{Local, named, Local, All, "", "nothing but each report's own noise"},
	{VectorSum, summed, Distributed, All, "binomial", "only the sum of noisy integers is seen"},
	{Distributed, summed, Distributed, CheckIn, "skellam", "such sums, for clients who check in by own coins"},
	{Central, curated, Central, All, "", "a trusted curator"},
	{None, exact, None, All, "", "no privacy at all"},
}

func (t Trust) mode() mode {
	for _, m := range modes {
		if m.trust == t {
			return m
		}
	}
	return mode{recorded: t, participation: All}
}

// Known says whether t is a mode.
func (t Trust) Known() bool { return t.mode().seen != unknown }

// Shuffled says whether a round's reports are seen in a random order, without senders.
func (t Trust) Shuffled() bool { return t.mode().seen == permuted }

// Alone says whether every report is seen with its sender.
func (t Trust) Alone() bool { return t.mode().seen == named }

// SumsOnly says whether nobody sees more than the sum of a round's reports.
func (t Trust) SumsOnly() bool { return t.mode().seen == summed }

// Curated says whether a trusted curator adds the noise.
func (t Trust) Curated() bool { return t.mode().seen == curated }

// HasLocalGuarantee says whether each report is ε₀-LDP by itself.
func (t Trust) HasLocalGuarantee() bool { return t.Shuffled() || t.Alone() }

// Protects says whether somebody adds noise.
func (t Trust) Protects() bool { return t.mode().seen != exact }

// Accountable says whether accountants have bounds for the mode.
func (t Trust) Accountable() bool { return t.HasLocalGuarantee() || t.SumsOnly() }

// Recorded returns the mode that events, tasks, announcements and pages have for t.
func (t Trust) Recorded() Trust { return t.mode().recorded }

// InEvents says whether a Round may have t.
func (t Trust) InEvents() bool { return t.Accountable() && t.Recorded() == t }

// CountsRemoval says whether accountants count CheckIn rounds for AddRemoveOne as well. With
// other modes the number of reports is public: a removed client is seen to be missing.
func (t Trust) CountsRemoval() bool { return t.SumsOnly() && t.InEvents() }

// Participation returns who takes part if nothing else is chosen.
func (t Trust) Participation() Participation { return t.mode().participation }

// Noise returns the law of a sum's noise if none is chosen, by package vecsum's name; "" if
// there is no sum.
func (t Trust) Noise() string { return t.mode().noise }

// TrustNames lists the modes with a property, such as Trust.Accountable.
func TrustNames(having func(Trust) bool) []string {
	var names []string
	for _, m := range modes {
		if having(m.trust) {
			names = append(names, string(m.trust))
		}
	}
	return names
}

// AnyTrust is TrustNames for a message: "a, b or c".
func AnyTrust(having func(Trust) bool) string {
	names := TrustNames(having)
	last := max(0, len(names)-2)
	return strings.Join(append(names[:last:last], strings.Join(names[last:], " or ")), ", ")
}

// DescribeTrusts is TrustNames for help and completion: each name, a tab and its meaning.
func DescribeTrusts(having func(Trust) bool) []string {
	names := TrustNames(having)
	for i, name := range names {
		names[i] += "\t" + Trust(name).mode().help
	}
	return names
}

// check returns an error for a trust mode that no round has, or that does not allow reports
// of this class.
func (t Trust) check(class Class) error {
	switch {
	case !t.InEvents():
		return fmt.Errorf("dp: unknown trust %q", t)
	case t.SumsOnly() && class != Gaussian:
		return fmt.Errorf("dp: trust %s is counted for class %s only, not %q: use trust %s, which covers a sum as well", t, Gaussian, class, Shuffle)
	}
	return nil
}
