package pine

import "testing"

// TestRangeOfProjections claims success for projections in 1 − reach … reach and no others.
func TestRangeOfProjections(t *testing.T) {
	t.Run("64", rangeOfProjections[f64])
	t.Run("128", rangeOfProjections[f128])
}

func rangeOfProjections[E element[E]](t *testing.T) {
	c := Config{Dim: 1, Bound: 1024, Checks: 1}.withDefaults()
	s := newVDAF[E](c.layout(), turboShake, tag{id: draftID})
	reach := int64(s.reach)
	for y, want := range map[int64]bool{-reach - 1: false, -reach: false, 1 - reach: true, 0: true, reach: true, reach + 1: false, -1 << 62: false, 1 << 62: false} {
		if got := s.encodeProjections(make([]E, s.full()), []E{of[E](y)}); got != want {
			t.Errorf("projection %d, reach %d: %v", y, reach, got)
		}
	}
}
