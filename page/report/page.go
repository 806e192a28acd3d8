package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"

	"github.com/riffle-dp/riffle/page/third_party/uplot"
)

var (
	//go:embed page.html
	pageSource string
	//go:embed page.css
	pageStyle string
	//go:embed page.js
	pageScript string
)

// render fills the template. The policy names the page's own style and script by hash, so
// nothing else runs and nothing is fetched, even if a value ever got around the template's
// escaping.
func render(v view) ([]byte, error) {
	t, err := template.New("page").Parse(pageSource)
	if err != nil {
		return nil, fmt.Errorf("report: %v", err)
	}
	v.Style = template.CSS(uplot.Style + "\n" + pageStyle)
	v.Script = template.JS("/*!\n" + uplot.Licence + "*/\n" + uplot.Script + "\n" + pageScript)
	v.Policy = template.HTMLAttr(fmt.Sprintf(
		`content="default-src 'none'; img-src data:; style-src %s %s; script-src %s; base-uri 'none'; form-action 'none'"`,
		hash(string(v.Style)), hash(noscriptStyle), hash(string(v.Script))))
	var b bytes.Buffer
	if err := t.Execute(&b, v); err != nil {
		return nil, fmt.Errorf("report: %v", err)
	}
	return bytes.ToValidUTF8(b.Bytes(), []byte("\uFFFD")), nil
}

// noscriptStyle is the content of the <noscript><style> element in page.html.
const noscriptStyle = ".scripted{display:none}"

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
