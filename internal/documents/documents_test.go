package documents

import (
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	for _, test := range []struct{ name, file, want string }{
		{"YAML", "a: 1\n", `{"a":1}`},
		{"documents", "# first\n---\na: 1\n---\n---\nb: 2\n", `{"a":1} {"b":2}`},
		{"JSON", `{"a":1}`, `{"a":1}`},
		{"JSON, values behind each other", "{\"a\":\n1}\n{\"b\":2}{\"c\":3}\n", "{\"a\":\n1} {\"b\":2} {\"c\":3}"},
		{"JSON, lines", "{\"a\":1}\n{\"b\":2}\n", `{"a":1} {"b":2}`},
		{"braces", "{a: 1,\n b: 2}\n", `{"a":1,"b":2}`},
		{"braces, comment", "{a: 1} # end\n# of it\n", `{"a":1}`},
		{"UTF-8 with a mark", "\xef\xbb\xbfa: 1\n", `{"a":1}`},
		{"UTF-8 with a mark, JSON", "\xef\xbb\xbf{\"a\":1}", `{"a":1}`},
		{"UTF-8 with a mark, JSON values", "\xef\xbb\xbf{\"a\":1}{\"b\":2}", `{"a":1} {"b":2}`},
		{"end of a document", "a: 1\n...\n", `{"a":1}`},
		{"empty", "# nothing\n", ""},

		{"more behind braces", "{a: 1}\nroutes:\n- b\n", "there is more after the end of a document"},
		{"more behind a list", "[a]\nroutes: []\n", "there is more after the end of a document"},
		{"more behind braces of the second", "a: 1\n---\n{a: 1}\nb: 2\n", "there is more after the end of a document"},
		{"YAML behind JSON", "{\"a\":1}\nb: 2\n", "there is more after the end of a document"},
		{"values in YAML", "{a: 1}\n{b: 2}\n", "there is more after the end of a document"},
		{"another document behind an end", "a: 1\n...\nb: 2\n", "there is more after the end of a document"},
		{"a key twice", "a: 1\na: 2\n", "already set in map"},
		{"UTF-16", "\xff\xfea\x00:\x00", "in UTF-16"},
		{"UTF-16, the other way round", "\xfe\xff\x00a\x00:", "in UTF-16"},
		{"half of a value", `{"a":1}{"b"`, "error"},
	} {
		documents, err := Split([]byte(test.file))
		var parts []string
		for _, document := range documents {
			parts = append(parts, string(document))
		}
		got := strings.Join(parts, " ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != test.want && !(err != nil && test.want != "" && strings.Contains(got, test.want)) {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}
