package train

import "go.yaml.in/yaml/v3"

// Parse applies YAML as ReadConfig does.
func (c *Config) Parse(raw []byte) error {
	next := *c
	if err := next.parseYAML(raw, nil); err != nil {
		return inputError("%v", err)
	}
	*c = next
	return nil
}

// Marshal writes what Parse reads.
func Marshal(c Config) ([]byte, error) { return yaml.Marshal(c) }
