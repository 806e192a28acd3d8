package store

import (
	"fmt"
	"testing"
)

// What a lagging replica leaves out the leader knows.
func TestMoreAsksTheLeader(t *testing.T) {
	ctx, s := t.Context(), fresh(t)
	must(t, s.createStream(ctx, "log", streamConfig{}))
	for i, suffix := range []string{"a", "b", "a", "b", "b"} {
		_, err := s.Append(ctx, "log", fmt.Sprint(i), suffix, nil)
		must(t, err)
	}
	h, err := s.js.Stream(ctx, s.logName("log"))
	must(t, err)
	for _, c := range []struct {
		suffix     string
		next, last uint64
		want       bool
	}{{"a", 1, 5, true}, {"a", 3, 5, true}, {"a", 4, 5, false}, {"b", 4, 5, true}, {"b", 5, 4, false}, {"b", 3, 3, false}, {">", 5, 5, true}, {">", 6, 9, false}, {"c", 1, 5, false}} {
		if got, err := s.more(ctx, h, c.next, c.last, s.logSubject("log", c.suffix)); err != nil || got != c.want {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
}
