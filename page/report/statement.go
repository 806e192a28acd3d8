package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/dp"
)

// statement is the privacy promise in plain words.
type statement struct {
	Lead  string `json:"lead"`
	Parts []part `json:"parts"`
	Note  string `json:"note,omitempty"` // a note on simulations; empty if there is nothing to say
}

// part is a heading with paragraphs, or with the items of a list.
type part struct {
	Heading string   `json:"heading"`
	Text    []string `json:"text"`
	List    bool     `json:"list,omitempty"`
}

// Explain says in plain words what is promised and on what the promise rests.
func Explain(p Privacy) (statement, error) {
	if err := p.check(); err != nil {
		return statement{}, err
	}
	return newStatement(p), nil
}

// alarms is the false-alarm rate at which the statement says how often an observer can be
// right.
const alarms = 0.05

// detection bounds the power of any test between neighbours that has the given false-alarm
// rate, under (ε, δ)-DP with a symmetric adjacency.
//
// Result: share in [0, 1], an upper bound up to rounding.
// Source: Kairouz, Oh, Viswanath, "The composition theorem for differential privacy", ICML
// 2015, Theorem 2.1 (the two lines of the region R(ε, δ)).
func detection(eps, delta, alarms float64) float64 {
	return min(1, math.Exp(eps)*alarms+delta, 1-math.Exp(-eps)*max(0, 1-alarms-delta))
}

func newStatement(p Privacy) statement {
	s := statement{}
	if p.Simulated {
		s.Note = simulated(p)
	}
	if !p.Trust.Is(dp.Protecting) {
		s.Lead = "This run gives no privacy. Every report is a client's exact gradient, and the model may remember what it saw."
		s.Parts = []part{
			{Heading: "Who sees what", Text: []string{
				"The coordinator sees each client's gradient without noise. From a gradient, a client's data can often be rebuilt.",
				"Whoever has the model may find out who was among the clients."}},
			{Heading: "What it is good for", Text: []string{
				"Comparing: the accuracy that the same model reaches when nothing has to be protected."}},
		}
		return s
	}
	s.Lead = lead(p)
	s.Parts = []part{
		{Heading: "Who is protected", Text: protected(p)},
		{Heading: "From whom", Text: observers(p)},
		{Heading: "Against what", Text: against(p)},
		{Heading: "As long as", Text: assumptions(p), List: true},
		{Heading: "What is not protected", Text: unprotected(p), List: true},
	}
	return s
}

func lead(p Privacy) string {
	if math.IsInf(p.Epsilon, 1) {
		return fmt.Sprintf("No finite ε is known for this run as a whole. Each report on its own is %s-locally private.", eps0(p))
	}
	if p.Rounds == 0 {
		return "No round was released: nothing about any client has left it."
	}
	over := "the whole run of " + plural(p.Rounds, "round")
	if p.Running {
		over = "the " + plural(p.Rounds, "round") + " so far; every further round adds to it"
	}
	claim := fmt.Sprintf("differential privacy with ε = %s and δ = %s for each of %s, over %s",
		roundUp(p.Epsilon, 4), small(p.Delta), plural(p.Population, "client"), over)
	switch p.Status {
	case dp.Proved:
		return "Proved: " + claim + "."
	case dp.Numeric:
		return "Verified numerically, not proved: " + claim + "."
	}
	return "An approximation, not a guarantee: " + claim + "."
}

// local writes what a report promises by itself, with digits enough to tell the charged ε₀
// from the asked one.
func local(eps float64) string { return roundUp(eps, 8) }

func eps0(p Privacy) string { return "ε₀ = " + local(p.Eps0) }

// own returns what the messages of one client's report promise together.
func (p Privacy) own() float64 { return p.Eps0 * float64(max(1, p.Messages)) }

func protected(p Privacy) []string {
	if p.Adjacency == dp.AddRemoveOne {
		return []string{fmt.Sprintf("Each of %s, with everything it holds. The promise compares this run with one "+
			"in which that client takes no part (add-or-remove-one adjacency).", plural(p.Population, "client"))}
	}
	return []string{fmt.Sprintf("Each of %s, with everything it holds. The promise compares this run with one "+
		"in which that client's data is replaced by any other data (replace-one adjacency). "+
		"The number of clients is public.", plural(p.Population, "client"))}
}

func observers(p Privacy) []string {
	if p.Trust.Is(dp.Alone) {
		return []string{"From everyone else: the coordinator, whoever carries the reports, and the public. " +
			"Each client adds its noise before anything leaves it, and that holds even against someone who knows every other client's data."}
	}
	seen, made := "the shuffled reports of every round", "every model on the way, the final model"
	if p.Trust.Is(dp.SumsOnly) {
		seen = "the noisy sum of every round"
	}
	if p.Question {
		made = "the answer"
	}
	out := []string{"From whoever sees what the coordinator sees: " + seen + ", " + made + ", and whatever is computed from them. " +
		"That is the coordinator itself and the public, even if they know every other client's data."}
	if p.KnowsWho > 0 {
		out = append(out, fmt.Sprintf("That holds against those who do not know who took part. The shuffler does, and so may a relay; it sees models as everybody: "+
			"to it, a client that is in each of %s is promised ε = %s.", plural(p.KnownRounds, "round"), roundUp(p.KnowsWho, 4)))
	}
	return out
}

func against(p Privacy) []string {
	if math.IsInf(p.Epsilon, 1) {
		return []string{fmt.Sprintf("Seeing one report, any observation is at most e^ε₀ = %s times as likely with one value of "+
			"the client's data as with any other. For the run as a whole nothing is promised.", factor(p.own()))}
	}
	most := min(1, math.Nextafter(detection(p.Epsilon, p.Delta, alarms), 2))
	verdict := ""
	if most > 0.9 {
		verdict = " With an ε this large that is next to no promise."
	}
	return []string{
		fmt.Sprintf("Against telling the one case from the other, by any method, with any computer, now or later. "+
			"Whatever is observed is at most e^ε = %s times as likely in one case as in the other, plus δ.", factor(p.Epsilon)),
		fmt.Sprintf("In other words: someone who has to tell the two cases apart, and may raise %s %% false alarms, "+
			"notices the difference at most %s %% of the time. Blind guessing does so %s %% of the time.%s",
			small(100*alarms), roundUp(100*most, 3), small(100*alarms), verdict),
	}
}

// factor writes e^eps, rounded up.
func factor(eps float64) string {
	if eps == 0 {
		return "1"
	}
	return roundUp(math.Nextafter(math.Exp(eps), math.Inf(1)), 3)
}

func assumptions(p Privacy) []string {
	var list []string
	if !p.Trust.Is(dp.Alone) {
		if p.Trust.Is(dp.Shuffled) {
			list = append(list, "The shuffler is honest: its operator strips who sent a report, holds a full batch, permutes it uniformly, "+
				"forwards it once, and does not work with the coordinator. "+fallback(p))
			if p.Messages > 1 {
				list = append(list, fmt.Sprintf("The shuffler orders the first messages of all clients, their second ones and so on by secrets of their own, "+
					"so that nobody can tell which %d messages of a round come from one client.", p.Messages))
			}
		} else if p.Honest > 0 {
			list = append(list, "One of the two aggregators is honest: it releases each round once, and none of fewer clients than the settings say. "+
				"What is released is made of this round's sum and earlier ones, so both aggregators hold their shares of sums without noise for some rounds: nobody gets both. If both work against the clients, they see each client's vector, and nothing else protects it.",
				fmt.Sprintf("In each round that is released, at least %d clients send noise as the protocol says, worth σ = %s clip norms together, and do not tell it. Others hide nobody. A release without them shows the sums of earlier rounds without noise.", p.Honest, number(p.Sigma)))
		} else if p.Every > 0 {
			list = append(list, "One of the two aggregators is honest: it adds its noise, worth σ = "+number(p.Sigma)+" clip norms, to its share of what a round releases before anybody sees it, and releases each round once. "+
				"What is released is made of this round's sum and earlier ones, so both aggregators hold their shares of sums without noise for some rounds: nobody gets both. If both work against the clients, they see each client's vector, and nothing else protects it.")
		} else if p.SumNoise {
			list = append(list, "One of the two aggregators is honest: it adds its noise, worth σ = "+number(p.Sigma)+" clip norms, to its share of a round's sum before anybody sees it, "+
				"once, and shows one sum of a round. If both work against the clients, they see each client's vector, and nothing else protects it.")
		} else {
			list = append(list, "The aggregators do not all work together: each adds up its shares of the reports, and only the total of a round is put together. "+
				"If they do, they see each report, and one client's noise alone promises next to nothing.")
		}
		if !p.SumNoise {
			list = append(list, "The other clients of a round make their reports as the protocol says. Clients that work with an observer hide nobody and do not count.")
		} else if p.Every == 0 && (p.Participation == dp.Sampled || p.Participation == dp.CheckIn) {
			list = append(list, "Clients that work with an observer may take part as they like, but no more of them are among all clients than the settings say.")
		}
		list = append(list,
			"All clients of a round are given the same "+map[bool]string{false: "model", true: "question"}[p.Question]+" and settings.")
		switch chance := p.Messages <= 1; { // several messages get no credit for chance
		case p.Every > 0:
			list = append(list, fmt.Sprintf("A client takes part in at most one of any %d rounds in a row, by its own count, and which these are does not depend on its data; who takes part may be known. "+
				"A client that takes part more often loses more, and costs nobody else anything.", p.Every))
		case p.Participation == dp.All:
			list = append(list, "Every client reports exactly once in every round.")
		case p.Participation == dp.Once:
			list = append(list, once(p))
		case !chance:
			list = append(list, "Who takes part in a round does not depend on anybody's data; it may be known.")
		case p.Participation == dp.Sampled:
			list = append(list, "The clients of a round are drawn uniformly, and who was drawn stays secret.")
		case p.Participation == dp.CheckIn:
			list = append(list, "Each client flips its own coin in every round, and how it fell stays secret.")
		}
	} else if p.Participation == dp.Once {
		list = append(list, once(p))
	}
	if p.Assumes != "" {
		list = append(list, "On the way, "+p.Assumes+".")
	}
	if p.SumNoise {
		what := "its vector, and shares it"
		if p.Honest > 0 {
			what = "its vector, draws its noise, and shares both"
		}
		return append(list, "Each client's own software clips and rounds "+what+" between the aggregators with secure randomness.")
	}
	own := eps0(p)
	if p.Messages > 1 {
		return append(list, fmt.Sprintf("Each client's own software randomizes each of its %d messages of a round (%s%s) with secure randomness of its own.",
			p.Messages, randomizerName(p), own))
	}
	if p.Trust.Is(dp.SumsOnly) {
		own = "worth σ = " + number(p.Sigma) + " clip norms"
	}
	return append(list,
		fmt.Sprintf("Each client's own software randomizes its report (%s%s) with secure randomness.", randomizerName(p), own))
}

// once says how often a client of disjoint batches reports.
func once(p Privacy) string {
	if p.ReportsPerClient > 1 {
		return fmt.Sprintf("Each client reports once in each of %d passes over all clients.", p.ReportsPerClient)
	}
	return "Each client reports in one round only."
}

func randomizerName(p Privacy) string {
	if p.Randomizer == "" {
		return ""
	}
	return p.Randomizer + ", "
}

// fallback says what remains without the shuffler: pure composition of what
// each report promises.
func fallback(p Privacy) string {
	each := fmt.Sprintf("If it is not, what remains is each report's own noise: %s per report, a factor of %s", eps0(p), factor(p.Eps0))
	if p.Messages > 1 {
		each = fmt.Sprintf("If it is not, what remains is each message's own noise: %s for each of %d, together %s per report, a factor of %s",
			eps0(p), p.Messages, local(p.own()), factor(p.own()))
	}
	reports := p.Rounds
	switch {
	case p.ReportsPerClient > 0:
		reports = p.ReportsPerClient
	case p.Participation == dp.Once:
		reports = 1
	}
	if reports > 1 {
		upTo := ""
		if p.Participation != dp.All || p.Running {
			upTo = "up to "
		}
		total := p.own() * float64(reports)
		return fmt.Sprintf("%s; over %s%s of a client that adds up to %s, which promises much less.",
			each, upTo, plural(reports, "report"), local(total))
	}
	return each + "."
}

func unprotected(p Privacy) []string {
	part := "That a client takes part: the shuffler sees who sends, and when."
	if p.Trust.Is(dp.Alone) {
		part = "That a client takes part, and when: the coordinator sees it."
	}
	if p.Trust.Is(dp.SumsOnly) {
		part = "That a client takes part: the aggregators see who sends, and when."
	}
	list := []string{
		"What is true of people in general. The model is meant to learn it, and it can be used to guess about anyone, client or not.",
		part,
		"The test examples. They are outside the promise, and some may be shown on this page as they are.",
		"Other runs with the same clients, also those tried to choose settings. Their losses add up with this one's.",
		"A person who is several clients loses several times.",
		"The model itself: a client that lies can make it worse. Privacy is not robustness.",
	}
	if p.Question {
		list[0] = "What is true of people in general. The answer is meant to tell it, and it can be used to guess about anyone, client or not."
		list[len(list)-1] = "The answer itself: a client that lies can falsify it. Privacy is not robustness."
		list = slices.Delete(list, 2, 3) // there are no test examples
	}
	if p.PublicExamples > 0 {
		list = append(list, fmt.Sprintf("The %s that were declared public: the model's principal axes were computed from them without noise.",
			plural(p.PublicExamples, "training example")))
	}
	return list
}

func simulated(p Privacy) string {
	if !p.Trust.Is(dp.Protecting) {
		return "A simulation: one process played every role, with randomness from a seed."
	}
	return "A simulation: one process played every client, the shuffler and the coordinator, and drew all noise from a seed " +
		"that this page may show. Whoever has the seed can take the noise away again. The figures describe the protocol " +
		"as separate parties would run it with secure randomness; they do not protect the data that went into this run."
}
