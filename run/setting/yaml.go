package setting

import (
	"bytes"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// MarshalYAML writes every setting but those that stand for "chosen for you".
func (t Table) MarshalYAML() (any, error) {
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range t {
		text := f.String()
		if text == "" {
			continue
		}
		value := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
		if f.Type() == "text" {
			value.Tag = "!!str"
		}
		node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: f.Name}, value)
	}
	return node, nil
}

// Parse applies YAML to the settings that skip does not name; skip may be nil. Unknown keys,
// keys given twice and values out of range are refused with their line, also where they are
// skipped, and then nothing is applied.
func (t Table) Parse(raw []byte, skip func(name string) bool) error {
	var doc yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(raw)).Decode(&doc); err != nil {
		if len(bytes.TrimSpace(raw)) == 0 {
			return nil
		}
		return err
	}
	return t.apply(doc.Content[0], skip)
}

// UnmarshalYAML applies a mapping of settings as Parse does.
func (t Table) UnmarshalYAML(root *yaml.Node) error { return t.apply(root, nil) }

func (t Table) apply(root *yaml.Node, skip func(string) bool) error {
	if root.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: want `name: value` lines", root.Line)
	}
	seen := map[string]bool{}
	var set []func() error
	for i := 0; i < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		at := slices.IndexFunc(t, func(f Field) bool { return f.Name == key.Value })
		switch {
		case at < 0:
			return fmt.Errorf("line %d: unknown key %q", key.Line, key.Value)
		case seen[key.Value]:
			return fmt.Errorf("line %d: key %q given twice", key.Line, key.Value)
		case value.Kind != yaml.ScalarNode:
			return fmt.Errorf("line %d: %s: want a single value", value.Line, key.Value)
		}
		seen[key.Value] = true
		if _, err := t[at].parse(value.Value); err != nil {
			return fmt.Errorf("line %d: %s: %v", value.Line, key.Value, err)
		}
		if skip == nil || !skip(key.Value) {
			set = append(set, func() error { return t[at].Set(value.Value) })
		}
	}
	for _, f := range set {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}
