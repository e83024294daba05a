package terminal

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Screen is drawn again in place.
type Screen struct {
	out  io.Writer
	size func() (width, height int)
}

// NewScreen returns the screen of a terminal, or nil if out is none.
func NewScreen(out io.Writer) *Screen {
	file, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil
	}
	return &Screen{out: out, size: func() (int, int) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil {
			return 80, 24
		}
		return width, height
	}}
}

const (
	home        = "\x1b[H"
	eraseScreen = "\x1b[2J"
	eraseLine   = "\x1b[K"
	eraseToEnd  = "\x1b[J"
	enterScreen = "\x1b[?1049h" // the alternate one, so that what was there before comes back
	leaveScreen = "\x1b[?1049l"
	// A line with characters of two columns may be wider than it is counted.
	noWrap, wrap     = "\x1b[?7l", "\x1b[?7h"
	hideCursor       = "\x1b[?25l"
	showCursor       = "\x1b[?25h"
	moreFollows      = "…"
	opening, closing = enterScreen + noWrap + hideCursor + eraseScreen, showCursor + wrap + leaveScreen
)

// Open takes the screen, and Close gives it back.
func (s *Screen) Open() { _, _ = io.WriteString(s.out, opening) }

// Close gives the screen back as it was.
func (s *Screen) Close() { _, _ = io.WriteString(s.out, closing) }

// Draw draws a text, whose lines are escaped already. What is too wide or too long is cut.
func (s *Screen) Draw(text string) {
	width, height := s.size()
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	var b strings.Builder
	b.WriteString(home)
	for i, line := range lines {
		if i == height-1 && i < len(lines)-1 {
			line = moreFollows
		}
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(cut(line, width))
		b.WriteString(eraseLine)
		if i == height-1 {
			break
		}
	}
	b.WriteString(eraseToEnd)
	_, _ = io.WriteString(s.out, b.String()) // at once, so that it does not flicker
}

// cut returns the first characters of a line.
func cut(line string, width int) string {
	if runes := []rune(line); width > 0 && len(runes) > width {
		return string(runes[:width-1]) + moreFollows
	}
	return line
}
