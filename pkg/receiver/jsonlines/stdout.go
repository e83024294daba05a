package jsonlines

import "io"

// stream is a destination that can be neither cut nor synced, such as a pipe.
type stream struct {
	w io.WriteCloser
	// inLine: the last write ended within a line.
	inLine bool
}

func (s *stream) prepare() error { return nil }

func (s *stream) write(lines []byte) error {
	if len(lines) == 0 {
		return nil
	}
	if s.inLine { // of which no more follows
		if _, err := s.w.Write([]byte{'\n'}); err != nil {
			return err
		}
		s.inLine = false
	}
	n, err := s.w.Write(lines)
	if err != nil && n > 0 {
		s.inLine = lines[n-1] != '\n'
	}
	return err
}

func (s *stream) commit() error { return nil }
func (s *stream) close() error  { return s.w.Close() }
