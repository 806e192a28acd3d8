package client_test

import (
	"fmt"
	"sync"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
)

// accountant computes each cost once for all tests.
var accountant = &remembering{costs: map[string]dp.Bound{}}

type remembering struct {
	mu    sync.Mutex
	costs map[string]dp.Bound
	account.Accountant
}

func (r *remembering) Eps(ev dp.Event, delta float64) (dp.Bound, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := fmt.Sprintf("%#v at %v", ev, delta)
	if b, ok := r.costs[key]; ok {
		return b, nil
	}
	b, err := r.Accountant.Eps(ev, delta)
	if err == nil {
		r.costs[key] = b
	}
	return b, err
}
