package intake

import (
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// jsonReader reads the JSON that client-go writes for Events and their patches. It reads only a part of JSON,
// and stops at all else, which takes the generic path: so what it reads, the strict decoder of the apiserver
// reads alike and without a warning (FuzzUsualBody). It stops at fields that it does not know or that are there
// twice, at null except for times, at all numbers but those from 0 to 999,999,999, at text that is not UTF-8, and at surrogates.
//
// Strings are copied, since they outlive the body.
type jsonReader struct {
	data []byte
	at   int
	// known are strings that are likely to be there again, which are not copied then.
	known [4]string
	kept  int // number of calls of keep
}

// object reads an object. It calls field for each name, which reads the value.
func (r *jsonReader) object(field func(name []byte) bool) bool {
	if !r.next('{') {
		return false
	}
	if r.next('}') {
		return true
	}
	for {
		name, escaped, ok := r.string()
		if !ok || escaped || !r.next(':') || !field(name) {
			return false
		}
		switch {
		case r.next(','):
		case r.next('}'):
			return true
		default:
			return false
		}
	}
}

// next reads one character, after white space, and returns false if there is another one.
func (r *jsonReader) next(c byte) bool {
	r.skipSpace()
	if r.at < len(r.data) && r.data[r.at] == c {
		r.at++
		return true
	}
	return false
}

// end reports whether nothing but white space is left.
func (r *jsonReader) end() bool {
	r.skipSpace()
	return r.at == len(r.data)
}

func (r *jsonReader) skipSpace() {
	for r.at < len(r.data) {
		switch r.data[r.at] {
		case ' ', '\t', '\r', '\n':
			r.at++
		default:
			return
		}
	}
}

// null reads null.
func (r *jsonReader) null() bool {
	const text = "null"
	r.skipSpace()
	if len(r.data)-r.at < len(text) || string(r.data[r.at:r.at+len(text)]) != text {
		return false
	}
	r.at += len(text)
	return true
}

// string reads a string, and returns what is between the quotation marks. It may have escape sequences.
func (r *jsonReader) string() (raw []byte, escaped, ok bool) {
	if !r.next('"') {
		return nil, false, false
	}
	begin := r.at
	for ; r.at < len(r.data); r.at++ {
		switch c := r.data[r.at]; {
		case c == '"':
			raw = r.data[begin:r.at]
			r.at++
			return raw, escaped, utf8.Valid(raw)
		case c < ' ':
			return nil, false, false
		case c == '\\':
			escaped = true
			r.at++ // the character after it ends nothing
		}
	}
	return nil, false, false
}

// text reads a string.
func (r *jsonReader) text(out *string) bool {
	raw, escaped, ok := r.string()
	if !ok {
		return false
	}
	if escaped {
		*out, ok = unescape(raw)
		return ok
	}
	*out = r.copy(raw)
	return true
}

// keep has a string not copied when it is there again.
func (r *jsonReader) keep(s string) bool {
	r.known[r.kept%len(r.known)] = s
	r.kept++
	return true
}

// copy returns a string that does not share memory with the body.
func (r *jsonReader) copy(raw []byte) string {
	switch string(raw) { // those that most Events have
	case "":
		return ""
	case "v1":
		return "v1"
	case "events.k8s.io/v1":
		return "events.k8s.io/v1"
	case "Event":
		return "Event"
	case "Pod":
		return "Pod"
	case corev1.EventTypeNormal:
		return corev1.EventTypeNormal
	case corev1.EventTypeWarning:
		return corev1.EventTypeWarning
	}
	for _, known := range r.known {
		if string(raw) == known {
			return known
		}
	}
	return string(raw)
}

// unescape returns a string with escape sequences.
func unescape(raw []byte) (string, bool) {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			out = append(out, raw[i])
			continue
		}
		i++
		switch raw[i] {
		case '"', '\\', '/':
			out = append(out, raw[i])
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			c, ok := hexOf(raw[i+1:])
			if !ok || 0xD800 <= c && c < 0xE000 {
				return "", false
			}
			out = utf8.AppendRune(out, c)
			i += 4
		default:
			return "", false
		}
	}
	return string(out), true
}

// hexOf is the value of four hexadecimal digits.
func hexOf(digits []byte) (value rune, ok bool) {
	if len(digits) < 4 {
		return 0, false
	}
	for _, c := range digits[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		value = value<<4 | rune(c)
	}
	return value, true
}

// int32 reads a number from 0 to 999,999,999.
func (r *jsonReader) int32(out *int32) bool {
	r.skipSpace()
	begin, n := r.at, int32(0)
	for ; r.at < len(r.data) && '0' <= r.data[r.at] && r.data[r.at] <= '9'; r.at++ {
		if r.at-begin == 9 {
			return false
		}
		n = n*10 + int32(r.data[r.at]-'0')
	}
	*out = n
	return r.at > begin && (r.data[begin] != '0' || r.at == begin+1)
}

// time reads a time in seconds and in UTC, or null.
func (r *jsonReader) time(out *metav1.Time) bool {
	return r.null() || r.instant(&out.Time, len("2006-01-02T15:04:05Z"))
}

// microTime reads a time in microseconds and in UTC, or null.
func (r *jsonReader) microTime(out *metav1.MicroTime) bool {
	return r.null() || r.instant(&out.Time, len("2006-01-02T15:04:05.000000Z"))
}

func (r *jsonReader) instant(out *time.Time, length int) bool {
	raw, escaped, ok := r.string()
	if !ok || escaped || len(raw) != length || raw[length-1] != 'Z' || out.UnmarshalText(raw) != nil {
		return false
	}
	*out = out.Local()
	return true
}
