// Package terminal writes text of strangers to a terminal: what clients have put into Events must not be able
// to control it. It also draws tables, as kubectl does, and a screen that is drawn again in place.
package terminal

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s in one line without anything that a terminal interprets: control characters, those that
// change the direction of text, invisible ones, and what is not UTF-8. They are shown escaped; ESC as kubectl
// shows it.
func Text(s string) string {
	return escape(s, func(r rune) bool { return false })
}

// Lines is Text for more than one line: line feeds and tabs stay.
func Lines(s string) string {
	return escape(s, func(r rune) bool { return r == '\n' || r == '\t' })
}

func escape(s string, keep func(rune) bool) string {
	harmless := func(r rune) bool { return r != utf8.RuneError && (unicode.IsGraphic(r) || keep(r)) }
	if strings.IndexFunc(s, func(r rune) bool { return !harmless(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == utf8.RuneError || harmless(r):
			b.WriteRune(r)
		case r == '\x1b':
			b.WriteString("^[")
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	return b.String()
}

// JSON returns a JSON text in which no string has a character that Text would escape. Its meaning is the same:
// JSON itself escapes only those below U+0020.
func JSON(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\n' || unicode.IsGraphic(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000 // as a surrogate pair
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}
