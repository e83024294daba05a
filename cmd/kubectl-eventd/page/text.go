package page

import (
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// maxRunes is the length up to which a string is shown. An Event's message has up to 1,024 bytes, unless it
// was reported in the old way.
const maxRunes = 2000

// clean makes all strings of an answer harmless to look at: those of Events are from whoever may create one.
// It is done here, once, so that no template can forget it. The templates escape for HTML.
func clean(answer any) { cleanValue(reflect.ValueOf(answer)) }

func cleanValue(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			cleanValue(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				cleanValue(v.Field(i))
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			cleanValue(v.Index(i))
		}
	case reflect.Map: // of strings
		for _, key := range v.MapKeys() {
			if value := v.MapIndex(key); value.Kind() == reflect.String {
				v.SetMapIndex(key, reflect.ValueOf(text(value.String())))
			}
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString(text(v.String()))
		}
	}
}

// text replaces what would move, hide or reorder what is around it: control characters, and those that
// change the direction of text. It cuts long strings, and says so.
func text(s string) string {
	var b strings.Builder
	n := 0
	for i, r := range s {
		if n++; n > maxRunes {
			fmt.Fprintf(&b, "… (%s more characters)", count(float64(utf8.RuneCountInString(s[i:]))))
			break
		}
		switch {
		case r == '\n':
			b.WriteString(" ↵ ") // a message of many lines is as high as one of many words
		case r == '\t':
			b.WriteByte(' ')
		case r < 0x20:
			b.WriteRune('\u2400' + r) // the pictures of control characters
		case r == 0x7f:
			b.WriteRune('\u2421')
		case invisible(r):
			fmt.Fprintf(&b, "‹U+%04X›", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// invisible characters act on others: C1 controls, line and paragraph separators, marks,
// embeddings, overrides and isolates of direction, tags, zero-width spaces.
func invisible(r rune) bool {
	switch {
	case r >= 0x80 && r < 0xa0, r == 0xad, r == 0x61c, r == 0x180e, r == 0x200b, r == 0x200e, r == 0x200f,
		r >= 0x2028 && r <= 0x202e, r >= 0x2060 && r <= 0x206f, r == 0xfeff, r >= 0xfff9 && r <= 0xfffb,
		r >= 0xe0000 && r <= 0xe007f:
		return true
	}
	return false
}
