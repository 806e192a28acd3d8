package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// visible returns text without what would steer a terminal: escape sequences, control characters
// but ends of lines and tabs, and marks that turn the direction of text. Names and messages come
// from programs, servers and files of others.
func visible(text string) string {
	var out strings.Builder
	for text != "" {
		i := steering(text)
		if i < 0 {
			break
		}
		out.WriteString(text[:i])
		if rest, ok := strings.CutPrefix(text[i:], "\x1b["); ok {
			// The rest of the sequence ends with a letter or another character from @ to ~.
			end := strings.IndexFunc(rest, func(r rune) bool { return r < ' ' || r > '?' })
			if end >= 0 && rest[end] >= '@' && rest[end] <= '~' {
				end++
			}
			if end < 0 {
				end = len(rest)
			}
			text = rest[end:]
			continue
		}
		_, size := utf8.DecodeRuneInString(text[i:])
		text = text[i+size:]
	}
	return out.String() + text
}

// oneLine returns text without ends of lines: a name cannot pass for a line of its own.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", " ") }

// steering returns the index of the first character that steers a terminal; -1: there is none.
func steering(text string) int {
	for i, r := range text {
		switch {
		case r == '\n' || r == '\t':
		case unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r):
			return i
		case r == utf8.RuneError && text[i] >= 0x80 && text[i] < 0xa0: // a control byte where text is not UTF-8
			return i
		}
	}
	return -1
}

// visibleWriter is where commands print: nothing that they say steers a terminal, wherever it is from.
type visibleWriter struct {
	w io.Writer

	mu   sync.Mutex
	rest []byte // the beginning of a character whose end has not come
}

func (v *visibleWriter) Write(b []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	text := append(v.rest, b...)
	whole := len(text)
	for at := whole - 1; at >= 0 && at >= whole-utf8.UTFMax; at-- {
		if utf8.RuneStart(text[at]) {
			if !utf8.FullRune(text[at:]) {
				whole = at
			}
			break
		}
	}
	v.rest = bytes.Clone(text[whole:])
	if _, err := io.WriteString(v.w, visible(string(text[:whole]))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// fileOf returns the file to which a command prints, if it is one.
func fileOf(w io.Writer) (*os.File, bool) {
	if v, ok := w.(*visibleWriter); ok {
		w = v.w
	}
	f, ok := w.(*os.File)
	return f, ok
}

// printJSON prints a document. It says the same with what steers a terminal written as numbers.
func printJSON(w io.Writer, v any) error {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	var text strings.Builder
	rest := out.String()
	for i := steering(rest); i >= 0; i = steering(rest) {
		r, size := utf8.DecodeRuneInString(rest[i:]) // of at most 16 bits; strings of JSON are UTF-8
		fmt.Fprintf(&text, "%s\\u%04x", rest[:i], r)
		rest = rest[i+size:]
	}
	_, err := io.WriteString(w, text.String()+rest)
	return err
}
