package jetstream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
)

const (
	// maxLine limits a line of the protocol in bytes. The longest is the one that begins a
	// connection, with the addresses of all servers of the cluster.
	maxLine = 64 << 10
	// maxPayload limits a message from the server in bytes. All messages are acknowledgements, of
	// about 100 bytes, and errors.
	maxPayload = 64 << 10
)

var (
	errOversized = errors.New("the server has sent a line or a message that is too large")
	errMalformed = errors.New("the server has sent the malformed head of a message")
)

// framed checks what a server sends before the client parses it. It follows the frames exactly as
// the parser of the client does (nats.go, parser.go): what one of them takes for a payload, the
// other must not take for a head.
type framed struct {
	net.Conn
	from io.Reader

	line []byte // what was read of a line
	// payload is what is left of a message, and of the byte after it, which the parser does not look
	// at. rest: then comes the rest of that line, which it ignores.
	payload int
	rest    bool
}

func (f *framed) Read(p []byte) (int, error) {
	n, err := f.from.Read(p)
	if refused := f.check(p[:n]); refused != nil {
		return 0, refused
	}
	return n, err
}

func (f *framed) check(data []byte) error {
	for len(data) > 0 {
		if f.payload > 0 {
			n := min(f.payload, len(data))
			f.payload -= n
			data = data[n:]
			continue
		}
		part, after, ends := bytes.Cut(data, []byte{'\n'})
		data = after
		if f.rest {
			f.rest = !ends
			continue
		}
		if len(f.line)+len(part) > maxLine {
			return errOversized
		}
		f.line = append(f.line, part...)
		if !ends {
			return nil
		}
		if err := f.begin(); err != nil {
			return err
		}
	}
	return nil
}

// begin is called when a line is whole. If it is the head of a message, its payload follows.
func (f *framed) begin() error {
	line := f.line
	f.line = f.line[:0]
	if len(line) == 0 || line[0]|0x20 != 'm' && line[0]|0x20 != 'h' { // MSG and HMSG, also in lower case
		return nil
	}
	head, ok := bytes.CutSuffix(line, []byte{'\r'})
	if !ok || bytes.ContainsRune(head, '\r') {
		return errMalformed
	}
	size, err := strconv.ParseUint(string(head[bytes.LastIndexAny(head, " \t")+1:]), 10, 63)
	switch {
	case errors.Is(err, strconv.ErrRange) || size > maxPayload:
		return errOversized
	case err != nil:
		return errMalformed
	}
	f.payload, f.rest = int(size)+1, true
	return nil
}
