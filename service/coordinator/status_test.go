package coordinator

import (
	"encoding/json"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// Who does not lead a task does not say that it has cost nothing.
func TestCostIsNotKnownBeforeTheLeaseIsHeld(t *testing.T) {
	s := &Service{config: Config{Log: slog.New(slog.DiscardHandler)}}
	status := s.plainRunner(Job{}, wire.Task{Name: "first"}).snapshot()
	if !math.IsNaN(float64(status.Eps)) {
		t.Errorf("epsilon = %v", float64(status.Eps))
	}
	text, err := json.Marshal(public(status))
	if err != nil || !strings.Contains(string(text), `"epsilon":null`) {
		t.Errorf("%s, %v", text, err)
	}
	status.Eps = .5
	if text, err := json.Marshal(public(status)); err != nil || !strings.Contains(string(text), `"epsilon":0.5`) {
		t.Errorf("%s, %v", text, err)
	}
}
