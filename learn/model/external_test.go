package model

import (
	"reflect"
	"strings"
	"testing"
)

func TestExternal(t *testing.T) {
	start := []float32{1, 2, 3, 4, 5}
	m, err := NewExternal("tiny", []string{"w", "b"}, [][]int{{2, 2}, {}}, start)
	if err != nil {
		t.Fatal(err)
	}
	if m.Params != 5 || m.Convex || m.Name != "tiny" {
		t.Errorf("%+v", m)
	}
	first := m.Init(3)
	if !reflect.DeepEqual(first, start) {
		t.Errorf("starts at %v", first)
	}
	first[0] = 9
	if m.Init(3)[0] != 1 {
		t.Error("the start can be changed")
	}
	tensors, err := m.Tensors(start)
	if err != nil || len(tensors) != 2 || tensors[0].Name != "w" || !reflect.DeepEqual(tensors[0].Shape, []int{2, 2}) || len(tensors[1].Shape) != 0 {
		t.Fatalf("%+v, %v", tensors, err)
	}
	if back, err := m.Theta(tensors); err != nil || !reflect.DeepEqual(back, start) {
		t.Errorf("%v, %v", back, err)
	}
	if m, err = NewExternal("tiny", []string{"w", "b"}, [][]int{{2, 2}, {}}, nil); err != nil || !reflect.DeepEqual(m.Init(1), make([]float32, 5)) {
		t.Errorf("without a start: %v", err)
	}
	for want, names := range map[string][]string{"0 names": {}, "2 names": {"w", "b"}, "4 initial parameters": {"w"}} {
		if _, err := NewExternal("x", names, [][]int{{5}}, make([]float32, 4)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
