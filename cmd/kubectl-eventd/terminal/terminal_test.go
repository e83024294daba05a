package terminal

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestTextHasNothingThatATerminalInterprets(t *testing.T) {
	for in, want := range map[string]string{
		"plain, äöü 漢字 🙂":         "plain, äöü 漢字 🙂",
		"\x1b]0;title\x07":        `^[]0;title\a`,
		"\x1b[2J\x1b[31mred":      "^[[2J^[[31mred",
		"a\r\nb\tc\x00":           `a\r\nb\tc\x00`,
		"\u009b31m":               `\u009b31m`, // CSI in one character
		"\x9b31m":                 `\x9b31m`,
		"\u202egnp.exe":           `\u202egnp.exe`,
		"a\u200bb\ufeff\u2028":    `a\u200bb\ufeff\u2028`,
		"\x7f\b":                  `\x7f\b`,
		"\ufffd stays":            "\ufffd stays",
		"a tag \U000e0041 hidden": `a tag \U000e0041 hidden`,
	} {
		if got := Text(in); got != want {
			t.Errorf("Text(%q) is %q, not %q", in, got, want)
		}
	}
	if got, want := Lines("a\n\tb\x1b"), "a\n\tb^["; got != want {
		t.Errorf("got %q, not %q", got, want)
	}
}

func FuzzText(f *testing.F) {
	f.Add("a\x1b[0m\xff\u202e")
	f.Fuzz(func(t *testing.T, s string) {
		got := Text(s)
		for _, r := range got {
			if !unicode.IsGraphic(r) {
				t.Fatalf("Text(%q) is %q, with %q", s, got, r)
			}
		}
		if !utf8.ValidString(got) {
			t.Fatalf("Text(%q) is %q", s, got)
		}
	})
}

func FuzzJSON(f *testing.F) {
	f.Add("a\x1b[0m\u009b\u202e\U000e0041")
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			t.Skip("not what an encoder returns")
		}
		plain, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		escaped := JSON(string(plain))
		var got string
		if err := json.Unmarshal([]byte(escaped), &got); err != nil || got != s {
			t.Fatalf("%s means %q, not %q (%v)", escaped, got, s, err)
		}
		if Text(escaped) != escaped {
			t.Fatalf("%q has what a terminal interprets", escaped)
		}
	})
}

func TestTableAlignsItsColumnsAndEscapesItsCells(t *testing.T) {
	var b strings.Builder
	table := NewTable(&b, "NAME", "MESSAGE")
	table.Row("web-0", "one\ttwo\nthree\x1b[A")
	table.Row("a-much-longer-name", "")
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	want := "NAME                 MESSAGE\n" +
		`web-0                one\ttwo\nthree^[[A` + "\n" +
		"a-much-longer-name   <none>\n"
	if b.String() != want {
		t.Errorf("got\n%s\nnot\n%s", b.String(), want)
	}
}

func TestColumnsOnlyGrow(t *testing.T) {
	var b strings.Builder
	table := NewTable(&b, "NAME", "AGE", "MESSAGE")
	table.Widen(10, 8)
	for _, name := range []string{"web-0", "web-123", "a-longer-name", "web-0"} {
		table.Row(name, "1s", "said")
		if err := table.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	want := "NAME      AGE     MESSAGE\n" +
		"web-0     1s      said\n" +
		"web-123   1s      said\n" +
		"a-longer-name   1s      said\n" +
		"web-0           1s      said\n"
	if b.String() != want {
		t.Errorf("got\n%s\nnot\n%s", b.String(), want)
	}
}

func TestScreenCutsWhatDoesNotFit(t *testing.T) {
	var b strings.Builder
	s := &Screen{out: &b, size: func() (int, int) { return 10, 3 }}
	s.Draw("one\na line that is too long\nthree\nfour\n")
	want := home + "one" + eraseLine + "\r\na line th…" + eraseLine + "\r\n…" + eraseLine + eraseToEnd
	if b.String() != want {
		t.Errorf("got %q, not %q", b.String(), want)
	}
	b.Reset()
	s.Draw("one\ntwo\nthree\n")
	if want := home + "one" + eraseLine + "\r\ntwo" + eraseLine + "\r\nthree" + eraseLine + eraseToEnd; b.String() != want {
		t.Errorf("got %q, not %q", b.String(), want)
	}
	b.Reset()
	s.Open()
	s.Close()
	if b.String() != opening+closing {
		t.Errorf("got %q", b.String())
	}
}

func TestOnlyATerminalIsAScreen(t *testing.T) {
	if NewScreen(&strings.Builder{}) != nil {
		t.Error("a builder is a screen")
	}
}
