package dp

import (
	"fmt"
	"strings"
)

// Trust is a mode of trust: what hides a client's report. Flags, files, events and messages
// contain its text. The table modes says what each mode means; ask for its traits instead of
// comparing names. A text that is no mode counts as protecting, but no event may have it.
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

// Trait is a property of a mode of trust. Traits can be joined by |.
type Trait uint16

const (
	Known          Trait = 1 << iota // one of the modes
	Shuffled                         // a round's reports are seen in a random order, without senders
	Alone                            // every report is seen with its sender
	SumsOnly                         // nobody sees more than the sum of a round's reports
	LocallyPrivate                   // each report is ε₀-LDP by itself
	Protecting                       // somebody adds noise
	Accountable                      // accountants have bounds for the mode
	InEvents                         // a Round may have the mode
	Uncurated                        // there is no curator who sees what clients hold
	// RemovalCounted: accountants count CheckIn rounds for AddRemoveOne as well. With other
	// modes the number of reports is public: a removed client is seen to be missing.
	RemovalCounted
	Answering // questions about rows may be asked with the mode: all clients are asked once
)

// mode is the meaning of a Trust.
type mode struct {
	trust         Trust
	traits        Trait
	recorded      Trust         // in events, tasks, announcements and pages
	participation Participation // default
	noise         string        // default of a sum, as package vecsum names it
	help          string        // half a sentence on what hides a report
}

const (
	eachPrivate = Known | Protecting | Uncurated | Accountable | LocallyPrivate | InEvents
	sumPrivate  = Known | Protecting | Uncurated | Accountable | SumsOnly
)

// modes are all modes, in the order in which lists show them.
var modes = [...]mode{
	{Shuffle, eachPrivate | Shuffled | Answering, Shuffle, All, "", "a random order of a round's reports"},
	{Local, eachPrivate | Alone | Answering, Local, All, "", "nothing but each report's own noise"},
	{VectorSum, sumPrivate | Answering, Distributed, All, "binomial", "only the sum of noisy integers is seen"},
	{Distributed, sumPrivate | InEvents | RemovalCounted, Distributed, CheckIn, "skellam", "such sums, for clients who check in by own coins"},
	{Central, Known | Protecting | Answering, Central, All, "", "a trusted curator"},
	{None, Known | Uncurated, None, All, "", "no privacy at all"},
}

func (t Trust) mode() mode {
	for _, m := range modes {
		if m.trust == t {
			return m
		}
	}
	return mode{traits: Protecting | Uncurated, recorded: t, participation: All}
}

// Is says whether the mode has all the given traits.
func (t Trust) Is(traits Trait) bool { return t.mode().traits&traits == traits }

// Recorded returns the mode that events, tasks, announcements and pages have for t.
func (t Trust) Recorded() Trust { return t.mode().recorded }

// Defaults returns who takes part, and the law of a sum's noise, if nothing else is chosen.
// Package vecsum names the laws; "" means that there is no sum.
func (t Trust) Defaults() (who Participation, noise string) {
	m := t.mode()
	return m.participation, m.noise
}

// TrustNames lists the modes with all the given traits.
func TrustNames(traits Trait) []string {
	var names []string
	for _, m := range modes {
		if m.trust.Is(traits) {
			names = append(names, string(m.trust))
		}
	}
	return names
}

// AnyTrust lists the modes with all the given traits for a message: "a, b or c".
func AnyTrust(traits Trait) string {
	names := TrustNames(traits)
	last := max(0, len(names)-2)
	return strings.Join(append(names[:last:last], strings.Join(names[last:], " or ")), ", ")
}

// DescribeTrusts lists the modes with all the given traits for help and completion: each
// name, a tab and its meaning.
func DescribeTrusts(traits Trait) []string {
	names := TrustNames(traits)
	for i, name := range names {
		names[i] += "\t" + Trust(name).mode().help
	}
	return names
}

// check returns an error for a trust mode that no round has, or that does not allow reports
// of this class.
func (t Trust) check(class Class) error {
	switch {
	case !t.Is(InEvents):
		return fmt.Errorf("dp: unknown trust %q", t)
	case class == GaussianSum && !t.Is(SumsOnly):
		return fmt.Errorf("dp: reports of class %s have no noise of their own: trust %s, not %s", class, AnyTrust(SumsOnly|InEvents), t)
	case t.Is(SumsOnly) && class != Gaussian && class != GaussianSum:
		return fmt.Errorf("dp: trust %s is counted for class %s only, not %q: use trust %s, which covers a sum as well", t, Gaussian, class, Shuffle)
	}
	return nil
}
