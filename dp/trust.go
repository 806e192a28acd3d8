package dp

import (
	"fmt"
	"strings"
)

// Trust is a mode of trust: what hides a report from whoever runs the system. Its
// text is what flags, files, events and messages have. What a mode means is a row of
// modes; a program asks its methods and does not compare names. A mode that has no
// row protects, as far as is known, but no accountant counts it.
type Trust string

const (
	Shuffle     Trust = "shuffle"
	Local       Trust = "local"
	VectorSum   Trust = "vector-sum"
	Distributed Trust = "distributed"
	Central     Trust = "central"
	None        Trust = "none"
)

// DefaultTrust is the mode where none is chosen.
const DefaultTrust = Shuffle

// view is what is seen of a round's reports by who takes its result.
type view int

const (
	_        view = iota
	permuted      // every report, in a uniformly random order, without senders
	named         // every report and its sender: each stands alone
	// Nobody sees more than the sum of a round's reports, nor, for Sampled and
	// CheckIn, whose reports are in it. Reports counts those whose noise is in the sum
	// that is released: a client that adds less does not count, and one whose report
	// is taken out takes its noise along.
	summed
	curated // no report: a trusted curator adds the noise
	exact   // every report, without noise
)

// mode is what a trust means.
type mode struct {
	trust Trust
	seen  view
	// recorded is what events, tasks, announcements and pages have for it.
	recorded Trust
	// participation and noise are defaults: who takes part, and the law of a sum's
	// noise as package vecsum names it.
	participation Participation
	noise         string
	help          string // what hides a report, in half a sentence
}

// modes are all of them, in the order that lists have. VectorSum and Distributed
// differ in their defaults only; both are recorded as Distributed.
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

// Known says that there is such a mode.
func (t Trust) Known() bool { return t.mode().trust != "" }

// Shuffled says that a round's reports are seen in a random order, without senders.
func (t Trust) Shuffled() bool { return t.mode().seen == permuted }

// Alone says that nothing hides whose a report is.
func (t Trust) Alone() bool { return t.mode().seen == named }

// SumsOnly says that nobody sees more than the sum of a round's reports.
func (t Trust) SumsOnly() bool { return t.mode().seen == summed }

// Curated says that a trusted curator sees what clients send, and adds the noise.
func (t Trust) Curated() bool { return t.mode().seen == curated }

// HasLocalGuarantee says that each report is ε₀-LDP by itself.
func (t Trust) HasLocalGuarantee() bool { return t.Shuffled() || t.Alone() }

// Protects says that there is noise: all modes but None.
func (t Trust) Protects() bool { return t.mode().seen != exact }

// Accountable says that accountants have bounds for it.
func (t Trust) Accountable() bool { return t.HasLocalGuarantee() || t.SumsOnly() }

// Recorded is what events, tasks, announcements and pages have for it.
func (t Trust) Recorded() Trust { return t.mode().recorded }

// InEvents says that a Round may have it.
func (t Trust) InEvents() bool { return t.Accountable() && t.Recorded() == t }

// CountsRemoval says that rounds of CheckIn are counted for AddRemoveOne, too. Elsewhere
// the number of reports is public, and a removed client is seen to be missing.
func (t Trust) CountsRemoval() bool { return t.SumsOnly() && t.InEvents() }

// Participation is who takes part where nothing else is chosen.
func (t Trust) Participation() Participation { return t.mode().participation }

// Noise is the law of a sum's noise where none is chosen, as package vecsum names
// it; "" where there is no sum.
func (t Trust) Noise() string { return t.mode().noise }

// TrustNames lists the modes that have a property, such as Trust.Accountable.
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
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " or " + names[last]
	}
	return strings.Join(names, "")
}

// DescribeTrusts is TrustNames for a flag's help: each name with what it means.
func DescribeTrusts(having func(Trust) bool) string {
	names := TrustNames(having)
	for i, name := range names {
		names[i] = fmt.Sprintf("%s (%s)", name, Trust(name).mode().help)
	}
	return strings.Join(names, ", ")
}

// check refuses a trust that no round has, or none whose reports are of this class.
func (t Trust) check(class Class) error {
	switch {
	case !t.InEvents():
		return fmt.Errorf("dp: unknown trust %q", t)
	case t.SumsOnly() && class != Gaussian:
		return fmt.Errorf("dp: trust %s is counted for class %s only, not %q: use trust %s, which covers a sum as well", t, Gaussian, class, Shuffle)
	}
	return nil
}
