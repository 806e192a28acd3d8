package main

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible returns text without what would steer a terminal: escape sequences, control characters
// but ends of lines and tabs, and marks that turn the direction of text. Names and messages come
// from programs, servers and files of others.
func visible(text string) string {
	steers := func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
	}
	if strings.IndexFunc(text, steers) < 0 {
		return text
	}
	var out strings.Builder
	for text != "" {
		i := strings.IndexFunc(text, steers)
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
