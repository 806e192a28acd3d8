package dp

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

func all(Trust) bool { return true }

// What each mode means, written out once more. Stores, certificates, configurations and
// the wire have the names; they must not change.
func TestTrustModes(t *testing.T) {
	properties := map[string]func(Trust) bool{
		"shuffled": Trust.Shuffled, "alone": Trust.Alone, "sums": Trust.SumsOnly, "curated": Trust.Curated,
		"local": Trust.HasLocalGuarantee, "protects": Trust.Protects, "accountable": Trust.Accountable, "events": Trust.InEvents, "removal": Trust.CountsRemoval,
	}
	for trust, want := range map[Trust]struct{ has, recorded, participation, noise string }{
		"shuffle":     {"accountable events local protects shuffled", "shuffle", "all", ""},
		"local":       {"accountable alone events local protects", "local", "all", ""},
		"vector-sum":  {"accountable protects sums", "distributed", "all", "binomial"},
		"distributed": {"accountable events protects removal sums", "distributed", "check-in", "skellam"},
		"central":     {"curated protects", "central", "all", ""},
		"none":        {"", "none", "all", ""},
		"hope":        {"protects", "hope", "all", ""},
		"":            {"protects", "", "all", ""},
	} {
		var has []string
		for name, is := range properties {
			if is(trust) {
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
		if string(trust.Participation()) != want.participation || trust.Noise() != want.noise {
			t.Errorf("%q has participation %q, noise %q", trust, trust.Participation(), trust.Noise())
		}
		if known := slices.Contains(TrustNames(all), string(trust)); known != trust.Known() || known == (trust == "hope" || trust == "") {
			t.Errorf("%q: known %v, in the list %v", trust, trust.Known(), known)
		}
		round := Round{Report: Report{Class: Gaussian, Sigma: 1}, Trust: trust, Participation: All, Population: 10}
		if err := round.Validate(); (err == nil) != trust.InEvents() {
			t.Errorf("a round with trust %q: %v", trust, err)
		}
	}
	if text, err := json.Marshal(TrustNames(all)); err != nil || string(text) != `["shuffle","local","vector-sum","distributed","central","none"]` {
		t.Errorf("the modes are %s, %v", text, err)
	}
}

func TestTrustLists(t *testing.T) {
	never := func(Trust) bool { return false }
	for got, want := range map[string]string{
		AnyTrust(Trust.Accountable):                        "shuffle, local, vector-sum or distributed",
		AnyTrust(Trust.SumsOnly):                           "vector-sum or distributed",
		AnyTrust(Trust.CountsRemoval):                      "distributed",
		AnyTrust(never):                                    "",
		strings.Join(DescribeTrusts(Trust.Curated), "; "):  "central\ta trusted curator",
		strings.Join(DescribeTrusts(Trust.SumsOnly), "; "): "vector-sum\tonly the sum of noisy integers is seen; distributed\tsuch sums, for clients who check in by own coins",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
