package coordinator

import (
	"crypto/ed25519"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// A coordinator does not start a task whose rounds would have less noise of clients than the task says.
func TestTasksWithNoiseOfClientsAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := newWorld(t, dp.Distributed, dp.CheckIn, withCorrelated, crowd(5, 4), byClients)
		check := func(change func(*world)) error {
			w := &world{t: t, key: good.key, task: good.task, config: good.config}
			change(w)
			if m, err := mechanism.New(w.task.Mechanism); err == nil {
				w.config.Report = m.Event()
			}
			w.config.Signed = wire.Sign(w.key, wire.LabelTask, wire.Encode(w.task))
			return CheckJob(Config{Key: w.key, Aggregator: &Aggregator{URL: "http://aggregator", Client: http.DefaultClient, Key: w.key.Public().(ed25519.PublicKey)}}, w.config)
		}
		if err := check(func(*world) {}); err != nil {
			t.Fatal(err)
		}
		for want, change := range map[string]func(*world){
			"worth sigma =": func(w *world) { w.task.Mechanism.Sum.Variance /= 2 },
			"sigma":         func(w *world) { w.task.Mechanism.Sum.Sigma *= 1.001 },
			"n-min = 4 less 0 reports for the colluders is below the 5 clients": func(w *world) { w.task.Mechanism.Sum.MinUsers = 5 },
			"n-min = 3 less 0 reports for the colluders is below the 4 clients": func(w *world) { w.task.MinReports = 3 },
			"n-min = 4 less 1 reports for the colluders is below the 4 clients": func(w *world) { w.config.Colluders = 1 },
			"honest fraction 0.2 of 4 users leaves no noise":                    func(w *world) { w.task.Mechanism.Sum.Honest = .2 },
			"honest fraction = 1.5 must be above 0":                             func(w *world) { w.task.Mechanism.Sum.Honest = 1.5 },
			"honest fraction = 0 must be above 0":                               func(w *world) { w.task.Mechanism.Sum.Honest = 0 },
			"with noise of 0 clients":                                           func(w *world) { w.task.Mechanism.Sum.MinUsers = 0 },
			"min users = -1 must not be negative":                               func(w *world) { w.task.Mechanism.Sum.MinUsers = -1 },
			"n-min = 16 must lie between 1 and users = 15":                      func(w *world) { w.task.Mechanism.Sum.MinUsers = 16 },
			`"vector-sum-by-clients" with noise by "aggregators"`:               func(w *world) { w.task.Mechanism.Sum.NoiseBy = "aggregators" },
			`"vector-sum-by-aggregators" with noise by "clients"`: func(w *world) {
				w.task.Mechanism.Name = "vector-sum-by-aggregators"
			},
			`needs proofs "pine" of each vector's norm`: func(w *world) { w.task.Mechanism.Sum.Proofs = "" },
			"without the weights of correlated noise": func(w *world) {
				w.task.Mechanism.Weights, w.task.Mechanism.WeightBits, w.task.Every = nil, 0, 0
			},
			"participation all": func(w *world) { w.task.Participation = dp.All },
			"gamma = 0.5":       func(w *world) { w.config.Gamma = .5 },
		} {
			if err := check(change); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		}
		// Of a share that is honest the others need not be told: half as much noise is worth half as much.
		if err := check(func(w *world) {
			s := &w.task.Mechanism.Sum
			s.Honest, s.Variance = .5, 2*s.Variance
		}); err != nil {
			t.Errorf("half of them with twice the noise: %v", err)
		}
	})
}
