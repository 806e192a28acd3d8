package config

import (
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/internal/durable"
)

// Values of the examples that have to be replaced.
var (
	zeroKey     = regexp.MustCompile(`A{40}`)
	exampleHost = regexp.MustCompile(`^https://[a-z0-9-]+\.example(:|/|$)`)
)

// ExamplePopulation is the population in the examples. It is valid, so that they can be
// loaded.
const ExamplePopulation = "00112233445566778899aabbccddeeff"

const exampleSealing = "sealing-0000000000000000.key"

// Placeholders lists the values of a configuration that are still those of the example, one a
// line. It returns none if the file cannot be read; loading the file reports the reason.
func Placeholders(path string) (found []string) {
	b, err := durable.ReadFile(path)
	if err != nil {
		return nil
	}
	var top yaml.Node
	if yaml.Unmarshal(b, &top) != nil {
		return nil
	}
	var walk func(n *yaml.Node, key string)
	walk = func(n *yaml.Node, key string) {
		if n.Kind == yaml.ScalarNode && (zeroKey.MatchString(n.Value) ||
			strings.HasSuffix(n.Value, exampleSealing) || exampleHost.MatchString(n.Value)) {
			found = append(found, fmt.Sprintf("%s: line %d: %s: %q is the example's: put your own there", path, n.Line, key, n.Value))
		}
		for i, c := range n.Content {
			name := key
			if n.Kind == yaml.MappingNode && i%2 == 1 {
				name = n.Content[i-1].Value
			}
			walk(c, name)
		}
	}
	walk(&top, "")
	return found
}
