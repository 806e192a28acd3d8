package dp

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// What each mode means, written out once more. Stores, certificates, configurations and
// the wire have the names; they must not change.
func TestTrustModes(t *testing.T) {
	properties := map[string]Trait{
		"shuffled": Shuffled, "alone": Alone, "sums": SumsOnly, "uncurated": Uncurated,
		"local": LocallyPrivate, "protects": Protecting, "accountable": Accountable, "events": InEvents, "removal": RemovalCounted, "answers": Answering,
	}
	for trust, want := range map[Trust]struct{ has, recorded, participation, noise string }{
		"shuffle":     {"accountable answers events local protects shuffled uncurated", "shuffle", "all", ""},
		"local":       {"accountable alone answers events local protects uncurated", "local", "all", ""},
		"vector-sum":  {"accountable answers protects sums uncurated", "distributed", "all", "binomial"},
		"distributed": {"accountable events protects removal sums uncurated", "distributed", "check-in", "skellam"},
		"central":     {"answers protects", "central", "all", ""},
		"none":        {"uncurated", "none", "all", ""},
		"hope":        {"protects uncurated", "hope", "all", ""},
		"":            {"protects uncurated", "", "all", ""},
	} {
		var has []string
		for name, is := range properties {
			if trust.Is(is) {
				has = append(has, name)
			}
		}
		slices.Sort(has)
		if got := strings.Join(has, " "); got != want.has {
			t.Errorf("%q is %q, want %q", trust, got, want.has)
		}
		if got := trust.Recorded(); got != Trust(want.recorded) {
			t.Errorf("%q is recorded as %q, want %q", trust, got, want.recorded)
		}
		if who, noise := trust.Defaults(); string(who) != want.participation || noise != want.noise {
			t.Errorf("%q has participation %q, noise %q", trust, who, noise)
		}
		if known := slices.Contains(TrustNames(0), string(trust)); known != trust.Is(Known) || known == (trust == "hope" || trust == "") {
			t.Errorf("%q: known %v, in the list %v", trust, trust.Is(Known), known)
		}
		round := Round{Report: Report{Class: Gaussian, Sigma: 1}, Trust: trust, Participation: All, Population: 10}
		if err := round.Validate(); (err == nil) != trust.Is(InEvents) {
			t.Errorf("a round with trust %q: %v", trust, err)
		}
	}
	if text, err := json.Marshal(TrustNames(0)); err != nil || string(text) != `["shuffle","local","vector-sum","distributed","central","none"]` {
		t.Errorf("the modes are %s, %v", text, err)
	}
}

func TestTrustLists(t *testing.T) {
	const never = Shuffled | Alone
	for got, want := range map[string]string{
		AnyTrust(Accountable):    "shuffle, local, vector-sum or distributed",
		AnyTrust(SumsOnly):       "vector-sum or distributed",
		AnyTrust(Answering):      "shuffle, local, vector-sum or central",
		AnyTrust(RemovalCounted): "distributed",
		AnyTrust(never):          "",
		strings.Join(DescribeTrusts(RemovalCounted), "; "): "distributed\tsuch sums, for clients who check in by own coins",
		strings.Join(DescribeTrusts(SumsOnly), "; "):       "vector-sum\tonly the sum of noisy integers is seen; distributed\tsuch sums, for clients who check in by own coins",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
