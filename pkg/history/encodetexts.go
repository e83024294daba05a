package history

import (
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// Names of Events end in 16 hexadecimal digits: the time in nanoseconds (client-go), or a hash (eventd).
const suffixDigits = 16

// How the name of an Event is encoded.
const (
	nameIsText = iota
	nameIsTime // NAME.DIGITS, relative to the time of the Event
	nameIsHash // NAME.DIGITS
)

// nearTime is the difference of times, in nanoseconds, below which nameIsTime is shorter.
const nearTime = 1 << 46

// textColumns returns the frame of texts.
func textColumns(rows []*row, b *block) []byte {
	var forms, numbers []byte
	var names, messages, labels, annotations texts
	var odd oddUIDs
	event := 0
	for i, r := range rows {
		e := r.Event
		if int(b.eventRows[event]) == i {
			_, exact := keyOf(e.UID)
			odd.add(event, string(e.UID), exact)
			form := byte(nameIsText)
			if value, ok := suffixOf(e.Name, e.InvolvedObject.Name); ok {
				form, numbers = appendSuffix(numbers, value, nanosOf(r))
			} else {
				names.add(e.Name)
			}
			forms = append(forms, form)
			event++
		}
		messages.add(shortened(e.Message, e.InvolvedObject.Name, string(e.InvolvedObject.UID)))
		labels.add(textOfMap(e.Labels))
		annotations.add(textOfMap(e.Annotations))
	}
	plain := append(forms, numbers...)
	plain = names.appendTo(plain)
	for _, t := range []*texts{&messages, &labels, &annotations} {
		plain = t.appendTo(plain)
	}
	return odd.appendTo(plain)
}

// nanosOf is the time that the name of the Event has, more or less.
func nanosOf(r *row) int64 {
	t := timesOf(r.Event)
	return t.begin(r.Observed.UnixMicro()) * 1000
}

// suffixOf returns the digits after the name of the object and a dot.
func suffixOf(name, object string) (uint64, bool) {
	if len(name) != len(object)+1+suffixDigits || name[len(object)] != '.' || name[:len(object)] != object {
		return 0, false
	}
	var value [8]byte
	digits := name[len(object)+1:]
	for i := range len(digits) {
		if c := digits[i]; 'A' <= c && c <= 'F' {
			return 0, false
		}
	}
	if _, err := hex.Decode(value[:], []byte(digits)); err != nil {
		return 0, false
	}
	return binary.BigEndian.Uint64(value[:]), true
}

func appendSuffix(b []byte, value uint64, nanos int64) (form byte, _ []byte) {
	if difference := int64(value - uint64(nanos)); -nearTime < difference && difference < nearTime {
		return nameIsTime, binary.AppendVarint(b, difference)
	}
	return nameIsHash, binary.BigEndian.AppendUint64(b, value)
}

// Marks in messages.
const (
	markName     = "\x00" // the name of the object
	markUID      = "\x01" // its uid
	markVerbatim = "\x02" // at the beginning: a message that has such characters itself
	minMarked    = 4
)

// shortened replaces the name and the uid of the object in a message, so that the messages about
// several objects are equal.
func shortened(message, name, uid string) string {
	if strings.ContainsAny(message, markName+markUID) || strings.HasPrefix(message, markVerbatim) {
		return markVerbatim + message
	}
	if len(uid) >= minMarked {
		message = strings.ReplaceAll(message, uid, markUID)
	}
	if len(name) >= minMarked {
		message = strings.ReplaceAll(message, name, markName)
	}
	return message
}

func restored(message, name, uid string) string {
	if strings.HasPrefix(message, markVerbatim) {
		return message[1:]
	}
	if strings.Contains(message, markName) {
		message = strings.ReplaceAll(message, markName, name)
	}
	if strings.Contains(message, markUID) {
		message = strings.ReplaceAll(message, markUID, uid)
	}
	return message
}

// textOfMap encodes labels or annotations.
func textOfMap(m map[string]string) string {
	if len(m) == 0 {
		return ""
	}
	var b []byte
	for _, k := range slices.Sorted(maps.Keys(m)) {
		b = appendString(appendString(b, k), m[k])
	}
	return string(b)
}

func mapOfText(text []byte) (map[string]string, error) {
	if len(text) == 0 {
		return nil, nil
	}
	m := make(map[string]string)
	r := reader{b: text}
	for len(r.b) > 0 {
		k := string(r.bytes(r.uvarint()))
		m[k] = string(r.bytes(r.uvarint()))
	}
	return m, r.err
}

// eventName is the name of an Event. The time is that of its first row.
func (v *view) eventName(event int, object string) string {
	value := v.suffixes[event]
	switch v.forms[event] {
	case nameIsTime:
		first, _ := v.b.rowsOf(event)
		value += uint64(v.times[first].begin(v.observed[first]) * 1000)
	case nameIsHash:
	default:
		return string(v.eventNames.at(v.nameIndex[event]))
	}
	b := make([]byte, 0, len(object)+1+suffixDigits)
	b = append(append(b, object...), '.')
	return string(hex.AppendEncode(b, binary.BigEndian.AppendUint64(nil, value)))
}
