package rules

import (
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// hostile returns expressions of about size bytes that are made to take long to compile.
func hostile(size int) map[string]string {
	nested := func(open, middle, end string, depth int) string {
		return strings.Repeat(open, depth) + middle + strings.Repeat(end, depth)
	}
	deep := func(open, middle, end string) string {
		return nested(open, middle, end, (size-len(middle))/(len(open)+len(end)))
	}
	wide := func(part, end string) string { return strings.Repeat(part, (size-len(end))/len(part)) + end }
	return map[string]string{
		"180 maps":                   nested("[1].map(a,", "1", ")", 180) + "==[]",
		"230 maps":                   nested("[1].map(a,", "1", ")", 230) + "==[]",
		"maps of the result":         "[1]" + wide(".map(a,a)", "==[]"),
		"filters":                    deep("[1].filter(a,", "true", ").size()==1"),
		"existence":                  deep("[1].exists_one(a,", "true", ")"),
		"maps of two variables":      deep("{1:1}.transformMap(k,v,", "1", ")"),
		"some maps of two variables": strings.Repeat("1 in "+nested("{1:1}.transformMap(k,v,", "1", ")", 20)+"||", size/600) + "true",
		"bindings":                   deep("cel.bind(a,", "[1]", ",[a,a])"),
		"optionals":                  deep("optional.of(", "1", ")"),
		"some optionals":             nested("optional.of(", "1", ")", 44) + "==" + nested("optional.of(", "1", ")", 44),
		"optional maps":              deep("optional.of(1).optMap(a,", "1", ")"),
		"ternaries":                  wide("true?true:", "true"),
		"nested ternaries":           deep("true?true:(", "true", ")"),
		"lists":                      deep("[", "1", "]"),
		"maps of lists":              deep("{'a':[", "1", "]}"),
		"concatenations":             wide("'a'+", "'a'==''"),
		"sums of lists":              wide("[1]+", "[1]==[]"),
		"a list":                     "[" + wide("1,", "1]==[]"),
		"a map":                      "{" + wide("1:'a',", "1:1}=={}"),
		"and":                        wide("true&&", "true"),
		"presence":                   wide("has(event.reason)&&", "true"),
		"types to infer":             wide("1 in [1]&&", "true"),
		"loops beside each other":    wide("[].exists(a,a in[])||", "true"),
		"parentheses":                deep("(", "true", ")"),
		"not":                        wide("!", "true"),
		"minus":                      wide("-", "1==1"),
		"indexes":                    "event" + wide("[0]", "==1"),
		"errors":                     wide("a.b(?", ""),
		"repetitions":                "'a'.matches('" + wide("a{1000}", "')"),
		"repetitions of others":      "'a'.matches('((((a{9}){9}){9}){9})')",
		"classes":                    wide(`'a'.matches('(?i)`+strings.Repeat(`\\pL`, 100)+"')&&", "true"),
	}
}

// An expression costs little to compile, or to refuse: whoever may list Events in one namespace may send any.
func TestCompilingIsBounded(t *testing.T) {
	const most = 40 << 20 // 4 KB of character classes; without limits, 230 maps take 6 GiB, and 12 s
	_ = result(t, "true", &corev1.Event{})
	for _, size := range []int{2000, 4000} { // and 4 KiB is the limit of a query
		for name, expression := range hostile(size) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := CompileExpression(expression, "match")
			runtime.ReadMemStats(&after)
			allocated := after.TotalAlloc - before.TotalAlloc
			t.Logf("%s, %d bytes: %d KiB, %.150v", name, len(expression), allocated>>10, err)
			if allocated > most {
				t.Errorf("%s, %d bytes: to compile it takes %d MiB", name, len(expression), allocated>>20)
			}
		}
	}
}

// BenchmarkHostile is how long they take.
func BenchmarkHostile(b *testing.B) {
	for name, expression := range hostile(2000) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = CompileExpression(expression, "match")
			}
		})
	}
}
