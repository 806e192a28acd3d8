package uplot

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"strings"
	"testing"
)

//go:embed README.md
var readme string

// The vendored files must be the ones that the README accounts for.
func TestFilesAreTheOnesStated(t *testing.T) {
	for name, text := range map[string]string{"uPlot.iife.min.js": Script, "uPlot.min.css": Style} {
		sum := sha256.Sum256([]byte(text))
		var row string
		for line := range strings.Lines(readme) {
			if strings.HasPrefix(line, "| `"+name+"` |") {
				row = line
			}
		}
		if !strings.Contains(row, hex.EncodeToString(sum[:])) {
			t.Errorf("%s has sha256 %x; README.md says %q", name, sum, row)
		}
	}
	if !strings.Contains(Script, "(v1.6.32)") || !strings.Contains(readme, "| Version | 1.6.32 |") {
		t.Error("version in the script and in README.md differ")
	}
	if !strings.Contains(Licence, "MIT License") || !strings.Contains(Licence, "Leon Sorokin") {
		t.Error("LICENSE is not uPlot's")
	}
}

// A page inlines the text between tags and hashes it for its security policy:
// nothing may end the element early, and no CR may be normalised away.
func TestFilesCanBeInlined(t *testing.T) {
	for _, bad := range []string{"</script", "<!--", "\r"} {
		if strings.Contains(strings.ToLower(Script), bad) {
			t.Errorf("script contains %q", bad)
		}
	}
	for _, bad := range []string{"</style", "<!--", "\r", "@import", "url("} {
		if strings.Contains(strings.ToLower(Style), bad) {
			t.Errorf("style contains %q", bad)
		}
	}
	if strings.Contains(Licence, "*/") {
		t.Error("licence would end the comment it is inlined in")
	}
}
