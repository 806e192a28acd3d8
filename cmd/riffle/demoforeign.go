package main

import (
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/internal/loopback"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
)

// refuseForeign refuses to go on with a demo whose files lead out of it: to a program that the command
// line does not name, to paths outside of the demo's directory, to other machines. The directory may be
// a stranger's, and its processes write where their configurations say.
func (d *demo) refuseForeign(program string) error {
	if d.Gradients != program {
		return usage("--resume %s: the demo's program is %q, and no program is started that only a file names; if it is yours, repeat it: --gradients", d.dir, d.Gradients)
	}
	if d.Page != "" && !d.inside("", d.Page) || d.Processes > mostProcesses {
		return usage("--resume %s: no demo has the page %q or %d processes", d.dir, d.Page, d.Processes)
	}
	err := filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type()&fs.ModeSymlink != 0 {
			err = usage("--resume %s: %s is a link, which a demo does not make", d.dir, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	l := d.loopback()
	configs := []string{operate.RoleShuffler, operate.RoleCoordinator, operate.RoleAggregator, operate.RoleRegistrar, operate.RoleRelay}
	for i := range d.Processes {
		configs = append(configs, fmt.Sprintf("clients-%d", i))
	}
	for _, name := range configs {
		var doc yaml.Node
		raw, err := durable.ReadFile(l.Config(name))
		if err == nil {
			err = yaml.Unmarshal(raw, &doc)
		} else if !slices.Contains(configs[:2], name) {
			continue // a role that this demo does not have, or that will miss its file
		}
		if err == nil {
			err = d.look("", &doc)
		}
		if err != nil {
			return usage("--resume %s: %v", l.Config(name), err)
		}
	}
	return nil
}

// look refuses values of a configuration that lead out of the demo.
func (d *demo) look(key string, n *yaml.Node) error {
	switch n.Kind {
	case yaml.ScalarNode:
		if !d.inside(key, n.Value) {
			return fmt.Errorf("line %d: %s: %q leads out of the demo", n.Line, key, n.Value)
		}
	case yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			if err := d.look(n.Content[i].Value, n.Content[i+1]); err != nil {
				return err
			}
		}
	case yaml.AliasNode:
		return fmt.Errorf("line %d: %s: an alias, which a demo does not write", n.Line, key)
	default:
		for _, one := range n.Content {
			if err := d.look(key, one); err != nil {
				return err
			}
		}
	}
	return nil
}

// inside says whether a value stays within the demo.
func (d *demo) inside(key, text string) bool {
	switch key {
	case "gradients", "evaluate":
		return text == "" || text == d.Gradients
	case "data":
		return text == d.Data || text == ""
	case "listen", "peers-listen", "admin", "dashboard":
		return text == "" || text == config.NoAddress || loopback.Address(text)
	}
	if strings.Contains(text, "://") || text != "" && (key == "url" || key == "urls" || key == "relay" || key == "cache") {
		u, err := url.Parse(text)
		return err == nil && loopback.Host(u.Host)
	}
	if filepath.IsAbs(text) {
		rel, err := filepath.Rel(d.dir, text)
		return err == nil && filepath.IsLocal(rel)
	}
	return !slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return r == '/' || r == '\\' }), "..")
}
