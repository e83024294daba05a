package frame

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Forwarded is a request of a client that a standby forwards.
type Forwarded struct {
	Timeout           time.Duration // until its deadline
	Method, URI, Host string
	User              user.Info // whom the standby has authenticated and authorized
	Header            http.Header
	Body              []byte
}

// AppendRequest appends a frame, with those headers that keep returns true for. It reports
// whether the frame is not too long.
func AppendRequest(buf []byte, id uint64, r *Forwarded, keep func(name string) bool) ([]byte, bool) {
	begin := len(buf)
	buf = Begin(buf, Request, id)
	at := len(buf)
	buf = append(buf, 0, 0, 0, 0) // the length of what precedes the body
	buf = binary.AppendUvarint(buf, uint64(max(r.Timeout, 0)))
	for _, s := range []string{r.Method, r.URI, r.Host, r.User.GetName(), r.User.GetUID()} {
		buf = appendString(buf, s)
	}
	buf = appendStrings(buf, r.User.GetGroups())
	buf = appendMap(buf, r.User.GetExtra(), nil)
	buf = appendMap(buf, r.Header, keep)
	binary.BigEndian.PutUint32(buf[at:], uint32(len(buf)-at-lengthBytes))
	buf = append(buf, r.Body...)
	return buf, End(buf, begin)
}

// DecodeRequest decodes the payload of a request, which it does not keep. What precedes the body is one string, of
// which all values are parts but the name of the user: what that user reports may be kept for hours.
func DecodeRequest(payload []byte) (*Forwarded, error) {
	d, rest := newDecoder(payload)
	r := &Forwarded{Timeout: time.Duration(d.number())}
	r.Method, r.URI, r.Host = d.string(), d.string(), d.string()
	caller := &user.DefaultInfo{Name: strings.Clone(d.string()), UID: d.string(), Groups: d.strings()}
	caller.Extra = d.values()
	r.User, r.Header = caller, d.values()
	if err := d.end(); err != nil {
		return nil, err
	}
	if r.Timeout < 0 || caller.Name == "" {
		return nil, fmt.Errorf("%w: no timeout, or nobody is asserted", errMalformed)
	}
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	r.Body = append([]byte{}, rest...)
	return r, nil
}

// AppendAnswerHead appends what precedes the body of an answer.
func AppendAnswerHead(buf []byte, code int, header http.Header) []byte {
	at := len(buf)
	buf = append(buf, 0, 0, 0, 0)
	buf = binary.AppendUvarint(buf, uint64(code))
	buf = appendMap(buf, header, nil)
	binary.BigEndian.PutUint32(buf[at:], uint32(len(buf)-at-lengthBytes))
	return buf
}

// DecodeAnswer decodes the parts of an answer. The body is a part of data.
func DecodeAnswer(data []byte) (code int, header http.Header, body []byte, err error) {
	d, body := newDecoder(data)
	code = int(d.number())
	header = d.values()
	if err := d.end(); err != nil {
		return 0, nil, nil, err
	}
	if code < 200 || code > 999 {
		return 0, nil, nil, fmt.Errorf("%w: code %d", errMalformed, code)
	}
	return code, header, body, nil
}

func appendString(buf []byte, s string) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(s))), s...)
}

func appendStrings(buf []byte, list []string) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(list)))
	for _, s := range list {
		buf = appendString(buf, s)
	}
	return buf
}

func appendMap(buf []byte, values map[string][]string, keep func(string) bool) []byte {
	n := 0
	for name := range values {
		if keep == nil || keep(name) {
			n++
		}
	}
	buf = binary.AppendUvarint(buf, uint64(n))
	for name, list := range values {
		if keep == nil || keep(name) {
			buf = appendStrings(appendString(buf, name), list)
		}
	}
	return buf
}

// decoder reads values from a string. After an error it returns zero values.
type decoder struct {
	left   string
	failed bool
}

// newDecoder returns one of the part whose length is in the first bytes, and the rest.
func newDecoder(data []byte) (*decoder, []byte) {
	if len(data) < lengthBytes {
		return &decoder{failed: true}, nil
	}
	size := uint64(binary.BigEndian.Uint32(data))
	data = data[lengthBytes:]
	if size > uint64(len(data)) {
		return &decoder{failed: true}, nil
	}
	return &decoder{left: string(data[:size])}, data[size:]
}

func (d *decoder) fail() {
	d.failed, d.left = true, ""
}

func (d *decoder) number() uint64 {
	var n uint64
	for i := 0; i < len(d.left) && i < binary.MaxVarintLen64; i++ {
		b := d.left[i]
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			d.left = d.left[i+1:]
			return n
		}
	}
	d.fail()
	return 0
}

func (d *decoder) string() string {
	n := d.number()
	if n > uint64(len(d.left)) {
		d.fail()
		return ""
	}
	s := d.left[:n]
	d.left = d.left[n:]
	return s
}

// count returns a number of items, each of which takes a byte at least.
func (d *decoder) count() int {
	n := d.number()
	if n > uint64(len(d.left)) {
		d.fail()
		return 0
	}
	return int(n)
}

func (d *decoder) strings() []string {
	n := d.count()
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = d.string()
	}
	return list
}

func (d *decoder) values() map[string][]string {
	n := d.count()
	if n == 0 {
		return nil
	}
	values := make(map[string][]string, n)
	for range n {
		name := d.string()
		values[name] = d.strings()
	}
	return values
}

func (d *decoder) end() error {
	if d.failed || d.left != "" {
		return errMalformed
	}
	return nil
}
