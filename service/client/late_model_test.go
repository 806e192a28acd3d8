package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/service/client"
)

// slowly tries what depends on times. Where the machine stood still for as long as these are, what
// was to be spread comes at once: then it tries again, four and sixteen times as slowly.
func slowly(t *testing.T, try func(scale time.Duration) error) {
	t.Helper()
	for _, scale := range []time.Duration{1, 4, 16} {
		err := try(scale)
		if err == nil {
			return
		}
		if t.Logf("at %d times the time: %v", scale, err); scale == 16 {
			t.Error(err)
		}
	}
}

// A coordinator that sends a model slowly, longer than reports are held back, must not learn when
// each report was made: they are held back from the model's arrival on.
func TestLateModelsDoNotShowWhenReportsAreMade(t *testing.T) {
	slowly(t, func(scale time.Duration) error {
		return lateModels(t, scale*1500*time.Millisecond, scale*1200*time.Millisecond)
	})
}

func lateModels(t *testing.T, late, spread time.Duration) error {
	const clients = 16
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	w := newWorld(t, clients, shuffleTask())
	var mu sync.Mutex
	var came, asked []time.Time
	w.before = func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/v1/models/") {
			time.Sleep(late)
		}
		mu.Lock()
		defer mu.Unlock()
		switch r.URL.Path {
		case "/v1/report":
			came = append(came, time.Now())
		case "/v1/session":
			asked = append(asked, time.Now())
		}
		return false
	}
	c := w.config()
	c.Spread = spread
	f, err := client.NewFleet(c, w.members)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	theta := make([]float32, dim)
	w.publish(w.announcement(1, theta), theta, nil)
	w.wait(ctx, clients)
	w.end()
	if err := errors.Join(<-done, f.Close()); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for what, times := range map[string][]time.Time{"reports": came, "requests for sessions": asked} {
		if len(times) != clients {
			return fmt.Errorf("%d %s of %d clients", len(times), what, clients)
		}
		first, last := slices.MinFunc(times, time.Time.Compare), slices.MaxFunc(times, time.Time.Compare)
		// All but within a quarter of the half of spread that they have: less than once in 1e8.
		if took := last.Sub(first); took < spread/8 {
			return fmt.Errorf("all %s come within %v: they are not spread over %v", what, took, spread/2)
		}
	}
	return nil
}
