package model

import (
	"reflect"
	"strings"
	"testing"
)

func TestExternal(t *testing.T) {
	c := ExternalConfig{Name: "tiny", Names: []string{"w", "b"}, Shapes: [][]int{{2, 2}, {}}, Initial: []float32{1, 2, 3, 4, 5}}
	m, err := NewExternal(c)
	if err != nil {
		t.Fatal(err)
	}
	if m.Params != 5 || m.Convex || m.Name != "tiny" {
		t.Errorf("%+v", m)
	}
	first := m.Init(3)
	if !reflect.DeepEqual(first, c.Initial) {
		t.Errorf("starts at %v", first)
	}
	first[0] = 9
	if m.Init(3)[0] != 1 {
		t.Error("the start can be changed")
	}
	tensors, err := m.Tensors(c.Initial)
	if err != nil || len(tensors) != 2 || tensors[0].Name != "w" || !reflect.DeepEqual(tensors[0].Shape, []int{2, 2}) || len(tensors[1].Shape) != 0 {
		t.Fatalf("%+v, %v", tensors, err)
	}
	if back, err := m.Theta(tensors); err != nil || !reflect.DeepEqual(back, c.Initial) {
		t.Errorf("%v, %v", back, err)
	}
	c.Initial = nil
	if m, err = NewExternal(c); err != nil || !reflect.DeepEqual(m.Init(1), make([]float32, 5)) {
		t.Errorf("without a start: %v", err)
	}
	for want, c := range map[string]ExternalConfig{
		"0 names":              {},
		"1 names":              {Names: []string{"w"}},
		"4 initial parameters": {Names: []string{"w"}, Shapes: [][]int{{5}}, Initial: make([]float32, 4)},
	} {
		if _, err := NewExternal(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
