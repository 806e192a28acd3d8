package report

import (
	"bytes"
	"encoding/xml"
	"io"
	"strings"
	"testing"
)

// node is an element of a parsed page. Script and style bodies are kept apart
// as text, as a browser does.
type node struct {
	Name string
	Attr map[string]string
	Kids []*node
	Text string // of a text node (Name == ""), or of a script or style
}

// cutBodies takes the bodies of scripts and styles out of a page. A body ends
// where a browser would end it, at the first end tag.
func cutBodies(page string) (rest string, bodies []string) {
	var b strings.Builder
	for {
		at, end := len(page), ""
		for _, name := range []string{"script", "style"} {
			if i := strings.Index(page, "<"+name); i >= 0 && i < at {
				at, end = i, "</"+name
			}
		}
		if end == "" {
			return b.String() + page, bodies
		}
		start := at + strings.Index(page[at:], ">") + 1
		length := strings.Index(page[start:], end)
		b.WriteString(page[:start])
		bodies = append(bodies, page[start:start+length])
		page = page[start+length:]
	}
}

// parse reads a page as strict XML once the raw bodies are out of the way: an
// unclosed element, a stray "<" or an unquoted attribute fails the test.
func parse(t *testing.T, page []byte) *node {
	t.Helper()
	text, bodies := cutBodies(string(page))
	d := xml.NewDecoder(strings.NewReader(text))
	d.Entity = xml.HTMLEntity
	root := &node{Name: "#document"}
	open := []*node{root}
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("page is not well formed: %v", err)
		}
		top := open[len(open)-1]
		switch token := token.(type) {
		case xml.StartElement:
			n := &node{Name: token.Name.Local, Attr: map[string]string{}}
			for _, a := range token.Attr {
				n.Attr[a.Name.Local] = a.Value
			}
			if n.Name == "script" || n.Name == "style" {
				n.Text, bodies = bodies[0], bodies[1:]
			}
			top.Kids = append(top.Kids, n)
			open = append(open, n)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			top.Kids = append(top.Kids, &node{Text: string(token)})
		}
	}
	return root
}

// all returns every element below n, in document order, that ok accepts.
func (n *node) all(ok func(*node) bool) (found []*node) {
	for _, k := range n.Kids {
		if k.Name != "" && ok(k) {
			found = append(found, k)
		}
		found = append(found, k.all(ok)...)
	}
	return found
}

func (n *node) named(name string) []*node {
	return n.all(func(n *node) bool { return n.Name == name })
}

func (n *node) class(class string) []*node {
	return n.all(func(n *node) bool {
		return strings.Contains(" "+n.Attr["class"]+" ", " "+class+" ")
	})
}

func (n *node) id(t *testing.T, id string) *node {
	t.Helper()
	found := n.all(func(n *node) bool { return n.Attr["id"] == id })
	if len(found) != 1 {
		t.Fatalf("%d elements with id %q, want 1", len(found), id)
	}
	return found[0]
}

// text is what a reader sees, scripts and styles left out.
func (n *node) text() string {
	if n.Name == "" {
		return n.Text
	}
	var b strings.Builder
	for _, k := range n.Kids {
		b.WriteString(k.text())
	}
	return b.String()
}

// outline writes the body's elements, their classes and their text.
func (n *node) outline(b *strings.Builder, depth int) {
	indent := strings.Repeat(" ", depth)
	if n.Name == "" {
		if s := strings.Join(strings.Fields(n.Text), " "); s != "" {
			b.WriteString(indent + s + "\n")
		}
		return
	}
	b.WriteString(indent + "<" + n.Name)
	for _, a := range []string{"id", "class", "role", "aria-label", "data-x", "data-y"} {
		if v, ok := n.Attr[a]; ok {
			b.WriteString(" " + a + "=" + v)
		}
	}
	b.WriteString(">\n")
	for _, k := range n.Kids {
		k.outline(b, depth+1)
	}
}

func write(t *testing.T, r Run) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
