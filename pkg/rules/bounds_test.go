package rules_test

import (
	"maps"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/rules"
	"github.com/eventd/eventd/test/cputime"
)

// nested returns an expression of a depth: before and after are around the rest.
func nested(before, middle, after string, depth int) string {
	return strings.Repeat(before, depth) + middle + strings.Repeat(after, depth)
}

// chained returns first with as many links as have room within size.
func chained(first, link string, size int) string {
	return first + strings.Repeat(link, max(0, (size-len(first))/len(link)))
}

func fill(before, middle, after string, size int) string {
	return nested(before, middle, after, (size-len(middle))/(len(before)+len(after)))
}

// doubled returns an expression in which the type of k is a map of maps, each of which is the key and the value of the
// one before.
func doubled(levels int) string {
	var all []string
	for at := "k"; len(all) < 2*levels; at += ".a" {
		all = append(all, at+".a=={}", at+".a in "+at)
	}
	return "[{}].exists(k,[" + strings.Join(all, ",") + "]==[])"
}

// hostile are expressions of at most 2 KB that take long to compile, by what they have in them. Those that begin with
// "in" are made to be within the limits.
var hostile = map[string]func(size int) string{
	"map 180":  func(int) string { return nested("[1].map(a,", "1", ")", 180) + "==[]" },
	"map 230":  func(int) string { return nested("[1].map(a,", "1", ")", 230) + "==[]" },
	"map keys": func(n int) string { return chained("[1]", ".map(a,{a:a})", 12*13) },
	"map keys unify": func(int) string {
		full := func(s string) string {
			for range 4 {
				s = "{" + s + ":" + s + "}"
			}
			return s
		}
		return "[[]].exists(a,[[]].exists(b,[[]].exists(c,[[]].exists(d,a==[" + full("b") + "]&&b==[" + full("c") + "]&&c==[" + full("d") + "]&&d==[1]))))"
	},
	"optMap":                 func(n int) string { return chained("optional.of(1)", ".optMap(a,a)", 14+12*17) },
	"optMap nested":          func(n int) string { return fill("optional.of(1).optMap(a,", "a", ")", n) },
	"optFlatMap":             func(n int) string { return chained("optional.of(1)", ".optFlatMap(a,optional.of(a))", 14+29*17) },
	"filter chain":           func(n int) string { return chained("[1]", ".filter(a,true)", n) },
	"exists nested":          func(n int) string { return fill("[1].exists(a,", "true", ")", n) },
	"map filter":             func(n int) string { return fill("[1].map(a,a>0,", "a", ")", n) },
	"transformMap":           func(n int) string { return fill("{1:1}.transformMap(k,v,", "v", ")", n) },
	"transformMap chain":     func(n int) string { return chained("{1:1}", ".transformMap(k,v,{k:v})", n) },
	"sortBy":                 func(n int) string { return chained("[1]", ".sortBy(a,a)", n) },
	"sortBy nested":          func(n int) string { return fill("[1].sortBy(a,", "1", "[0])", n) },
	"ternary":                func(n int) string { return chained("", "true?1:", n-1) + "1" },
	"ternary left":           func(n int) string { return fill("(", "true", "?true:true)", n) },
	"ternary lists":          func(n int) string { return chained("", "true?[]:", n-2) + "[]" },
	"lists":                  func(n int) string { return fill("[", "", "]", n) },
	"empty lists":            func(n int) string { return "[" + chained("[]", ",[]", n-2) + "]" },
	"empty maps":             func(n int) string { return "[" + chained("{}", ",{}", n-2) + "]" },
	"maps":                   func(n int) string { return fill("{1:", "1", "}", n) },
	"list of numbers":        func(n int) string { return "1 in [" + chained("1", ",1", n-7) + "]" },
	"strings":                func(n int) string { return chained("''", "+''", n) },
	"list sum":               func(n int) string { return chained("[]", "+[]", n) },
	"list equality":          func(n int) string { return chained("[]==[]", "&&[]==[]", n) },
	"equalities":             func(n int) string { return chained("1==1", "&&1==1", n) },
	"comparisons":            func(n int) string { return chained("1==1", "&&1==1&&1<1", n) },
	"optionals":              func(n int) string { return chained("{}", "[?1].orValue({})", n) },
	"optional of":            func(n int) string { return fill("optional.of(", "1", ")", n) },
	"ands":                   func(n int) string { return chained("true", "&&true", n) },
	"ors":                    func(n int) string { return chained("true", "||true", n) },
	"sums":                   func(n int) string { return chained("1", "+1", n) },
	"parentheses":            func(n int) string { return fill("(", "true", ")", n) },
	"nots":                   func(n int) string { return chained("", "!", n-4) + "true" },
	"nots in parentheses":    func(n int) string { return fill("!(", "true", ")", n) },
	"minuses":                func(n int) string { return chained("", "-", n-1) + "1" },
	"minuses in parentheses": func(n int) string { return fill("-(", "1", ")", n) },
	"has":                    func(n int) string { return chained("has(event.type)", "&&has(event.type)", n) },
	"bind":                   func(n int) string { return fill("cel.bind(a,1,", "a", ")", n) },
	"index":                  func(n int) string { return chained("event.metadata.labels", "['a']", n) },
	"select":                 func(n int) string { return chained("event", ".a", n) },
	"calls":                  func(n int) string { return chained("''", ".trim()", n) },
	"unknown names":          func(n int) string { return chained("a", "+a", n) },
	"unknown functions":      func(n int) string { return chained("a()", "||a()", n) },
	"wrong types":            func(n int) string { return chained("''+1", ",''+1", n) },
	"wrong list":             func(n int) string { return "[" + chained("''+1", ",''+1", n-2) + "]" },
	"errors":                 func(n int) string { return chained("", ")(", n) },
	"errors 2":               func(n int) string { return chained("", "[{(", n) },
	"errors 3":               func(n int) string { return chained("", "1 ", n) },
	"errors 4":               func(n int) string { return chained("", "\"", n) },
	"errors 5":               func(n int) string { return chained("", "?", n) },
	"regex":                  func(n int) string { return `"".matches("` + chained("", "a{1000}", n-20) + `")` },
	"regex classes":          func(n int) string { return `"".matches("` + chained("", `\\pL{1000}`, n-20) + `")` },
	"regex groups":           func(n int) string { return `"".matches("` + chained("", "(", n/2-20) + chained("", ")", n/2-20) + `")` },
	"regex fold":             func(n int) string { return `"".matches("(?i)` + chained("", `[^k]`, n-20) + `")` },
	"regexes":                func(n int) string { return chained(`"".matches("a{1000}")`, `||"".matches("a{1000}")`, n) },
	"duration":               func(n int) string { return `duration("` + chained("", "1h", n-20) + `")>duration("1h")` },
	"format":                 func(n int) string { return `"` + chained("", "%s", n-20) + `".format([])==""` },
	"quantity":               func(n int) string { return `quantity("1e999999999")>quantity("1")` },
	"strings of messages":    func(n int) string { return chained("event.message", "+event.message", n) + "==''" },
	"in unify": func(n int) string {
		x := func(m string) string { return nested("[", m, "]", 5) }
		return "[[[]]].exists(a,[[[]]].exists(b,[[[]]].exists(c,[[[]]].exists(d," + chained("a=="+x("b")+"&&b=="+x("c")+"&&c=="+x("d")+"&&d=="+x("1"), "&&a==a", 250) + chained("&&[a", ",a", n-340) + "]==[]))))"
	},
	"in unify eq": func(n int) string {
		x := func(m string) string { return nested("[", m, "]", 5) }
		return "[[[]]].exists(a,[[[]]].exists(b,[[[]]].exists(c,[[[]]].exists(d," + chained("a=="+x("b")+"&&b=="+x("c")+"&&c=="+x("d")+"&&d=="+x("1"), "&&a==a", 250) + "))))"
	},
	"in calls": func(n int) string {
		return chained("1==1", "&&1==1&&1<1", 220) + "&&1 in [1" + chained("", ",1", n-240) + "]"
	},
	"in deep type": func(n int) string {
		return chained("[1].map(a,"+nested("[", "a", "]", 2)+").map(a,"+nested("[", "a", "]", 2)+").exists(a, a==a", "&&a==a", 300) + ")"
	},
	"in plus": func(n int) string {
		return chained("[1].map(a,"+nested("[", "a", "]", 2)+").map(a,"+nested("[", "a", "]", 2)+").exists(a, a==a", "&&a==a&&a+a==a+a", 260) + ")"
	},
	"in lists": func(n int) string {
		return "[" + chained("[]", ",[]", 190) + chained("", ",[1]", 240) + "]==[]"
	},
	"in maps": func(n int) string { return "[" + chained("{}", ",{}", 60) + chained("", ",{1:1}", 150) + "]==[]" },
	"in optionals": func(n int) string {
		return "[" + chained(nested("optional.of(", "1", ")", 20), ","+nested("optional.of(", "1", ")", 20), 1600) + "]==[]"
	},
	"in ternary":           func(n int) string { return chained("(true?[]:[1])==[]", "&&(true?[]:[1])==[]", 380) },
	"in formats":           func(n int) string { return chained("'%s'.format([1])==''", "&&'%s'.format([1])==''", 660) },
	"in index":             func(n int) string { return chained("[1][0]==1", "&&[1][0]==1", 300) },
	"types that double":    func(int) string { return doubled(14) },
	"in types that double": func(int) string { return doubled(1) },
	"unicode":              func(n int) string { return "'" + chained("", "é", n-2) + "'==''" },
}

// A client may send an expression of 2 KB. Whatever is in it, it is compiled or refused within milliseconds: without
// limits, some of these take minutes and all memory. The time has room for the race detector and a busy machine.
func TestCompilationIsBounded(t *testing.T) {
	const size, limit, maxAllocated = 2 << 10, 500 * time.Millisecond, 16 << 20
	if _, err := rules.CompileExpression("true", "match"); err != nil { // the environment is made once
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(hostile)) {
		text := hostile[name](size)
		fastest, allocated, answer := time.Hour, uint64(0), "is compiled"
		for n := 0; n < 10 && (n < 3 || fastest > limit); n++ { // the machine may be busy
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := cputime.Spent(t)
			_, err := rules.CompileExpression(text, "match")
			fastest = min(fastest, cputime.Spent(t)-began)
			runtime.ReadMemStats(&after)
			if allocated = after.TotalAlloc - before.TotalAlloc; err != nil {
				answer = err.Error()
			}
			if allocated > maxAllocated {
				break
			}
		}
		t.Logf("%-22s %4d B %7.2f ms %5.1f MB  %.80s", name, len(text), fastest.Seconds()*1e3, float64(allocated)/1e6, answer)
		if fastest > limit || allocated > maxAllocated {
			t.Fatalf("%s takes %s and %d bytes: %.200s", name, fastest, allocated, text)
		}
	}
}

// What the limits are for is far from what is written: the examples use a fraction of them.
func TestUsualExpressionsAreFarWithinTheLimits(t *testing.T) {
	for _, text := range []string{
		`event.type == "Warning" && !(event.reason in ["BackOff", "Unhealthy", "FailedScheduling"]) && event.count > 10`,
		`event.metadata.labels.exists(k, k.startsWith("team/") && k != "team/none")`,
		`event.metadata.labels[?"app"].optMap(a, a.startsWith("web")).orValue(false)`,
		`has(event.related) && event.related.kind == "Node" ? event.message.matches("(?i)disk|memory") : event.reason.endsWith("Failed")`,
		`["kube-system", "monitoring"].filter(n, n != "x").map(n, n + "-1").exists(n, n == event.metadata.namespace)`,
		"event.reason in [" + strings.Repeat(`"FailedScheduling",`, 500) + `"Failed"]`,
		`event.reason == "a"` + strings.Repeat(` || event.reason == "b" && event.type == "Normal"`, 30),
	} {
		if _, err := rules.CompileExpression(text, "match"); err != nil {
			t.Errorf("%.100s: %v", text, err)
		}
	}
}

// An evaluation costs milliseconds, whatever its functions do with the largest Event.
func TestEvaluationIsBounded(t *testing.T) {
	const limit, maxAllocated = 250 * time.Millisecond, 16 << 20
	event := &corev1.Event{Message: strings.Repeat("a", 16<<10), LastTimestamp: metav1.Now()}
	event.Annotations = make(map[string]string)
	for i := range 60 {
		event.Annotations[strconv.Itoa(i)] = strings.Repeat("x", 4000)
	}
	for _, call := range []string{
		`"%s".format([event.metadata.annotations]) != ""`, `dyn("%s").format(dyn([event.metadata.annotations])) != ""`,
		`"%x".format([event.message]) != ""`, `"%.1000000f".format([1.0e300]) != ""`,
		`event.lastTimestamp.getFullYear(event.message) == 1 || true`, `event.lastTimestamp.getHours("x") == 1 || true`,
		`dyn(event.lastTimestamp).getHours("x") == 1 || true`, `event.message.charAt(5) != "z"`, `timestamp(event.message) == event.lastTimestamp || true`,
	} {
		var expression *rules.Expression
		for n := 1; n <= 4096; n *= 2 { // as often as it may be
			loop := func(n int) string { return "[1" + strings.Repeat(",1", n-1) + "].all(a, " }
			e, err := rules.CompileExpression(loop(min(n, 64))+loop(max(1, n/64))+call+"))", "match")
			if err != nil {
				break
			}
			expression = e
		}
		if expression == nil {
			t.Errorf("%s is refused", call)
			continue
		}
		fastest, allocated := time.Hour, uint64(math.MaxUint64) // of other goroutines, too
		for range 5 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := cputime.Spent(t)
			expression.Matches(event)
			fastest = min(fastest, cputime.Spent(t)-began)
			runtime.ReadMemStats(&after)
			allocated = min(allocated, after.TotalAlloc-before.TotalAlloc)
		}
		t.Logf("%8.2f ms %6.1f MB  %s", fastest.Seconds()*1e3, float64(allocated)/1e6, call)
		if fastest > limit || allocated > maxAllocated {
			t.Errorf("%s takes %s and %d bytes", call, fastest, allocated)
		}
	}
}

// What is just within a limit is compiled, and one more is refused.
func TestLimitsAreExact(t *testing.T) {
	for name, test := range map[string]struct {
		of    func(n int) string
		most  int
		limit string // as the error says it
	}{
		"depth":            {func(n int) string { return nested("[", "1", "]", n) + "==[]" }, 22, "is nested too deeply"},
		"depth of targets": {func(n int) string { return "''" + strings.Repeat(".trim()", n) + "==''" }, 22, "is nested too deeply"},
		"depth of fields":  {func(n int) string { return "event" + strings.Repeat(".a", n) + "==1" }, 22, "is nested too deeply"},
		"depth of maps":    {func(n int) string { return nested("{1:", "1", "}", n) + "=={}" }, 22, "is nested too deeply"},
		"depth of a variable": {func(n int) string {
			return nested("[", "1", "]", 12) + ".exists(a," + nested("[", "a", "]", n) + "==[])"
		}, 7, "is nested too deeply"},
		"depth of a bound variable": {func(n int) string {
			return "optional.of(" + nested("[", "1", "]", 8) + ").optMap(a," + nested("[", "a", "]", n) + ")==optional.none()"
		}, 8, "is nested too deeply"},
		"depth of a second variable": {func(n int) string {
			return "{1:" + nested("[", "1", "]", 8) + "}.transformList(k,v," + nested("[", "v", "]", n) + ")==[]"
		}, 9, "is nested too deeply"},
		"a repetition":             {func(n int) string { return `"".matches("a{` + strconv.Itoa(n) + `}")` }, 250, "repeat less"},
		"a repetition without end": {func(n int) string { return `"".matches("a{` + strconv.Itoa(n) + `,}")` }, 250, "repeat less"},
		"a long pattern":           {func(n int) string { return `"".matches("` + strings.Repeat("a", n) + `")` }, 500, "repeat less"},
		"long patterns":            {func(n int) string { return "true" + strings.Repeat(`||"".matches("a{250}")`, n) }, 4, "together"},
		"loops":                    {func(n int) string { return nested("[1].exists(a,", "true", ")", n) }, 4, "loops within each other"},
		"depth of messages":        {func(n int) string { return nested("a{b:", "1", "}", n) + "==1" }, 22, "is nested too deeply"},
		"loops in a chain":         {func(n int) string { return "[1]" + strings.Repeat(".filter(a,true)", n) + "==[]" }, 4, "loops within each other"},
		"calls":                    {func(n int) string { return "true" + strings.Repeat("&&true", n) }, 128, "operators, calls and lists"},
		"lists":                    {func(n int) string { return "[[]" + strings.Repeat(",[]", n) + "]==[]" }, 124, "operators, calls and lists"},
		"maps":                     {func(n int) string { return "[{1:1}" + strings.Repeat(",{1:1}", n) + "]==[]" }, 61, "operators, calls and lists"},
		"empty maps":               {func(n int) string { return "[1]" + strings.Repeat("==[{}]", n) }, 2, "empty maps"},
		"copies":                   {func(n int) string { return "optional.of(1" + strings.Repeat("+1", n) + ").optMap(a,a)==optional.of(1)" }, 14, "is called on more than"},
		"copies of optFlatMap": {func(n int) string {
			return "optional.of(1" + strings.Repeat("+1", n) + ").optFlatMap(a,optional.of(a))==optional.of(1)"
		}, 14, "is called on more than"},
	} {
		if _, err := rules.CompileExpression(test.of(test.most), "match"); err != nil && strings.Contains(err.Error(), test.limit) {
			t.Errorf("%s: %d are refused: %v", name, test.most, err)
		}
		if _, err := rules.CompileExpression(test.of(test.most+1), "match"); err == nil || !strings.Contains(err.Error(), test.limit) {
			t.Errorf("%s: %d are not refused: %v", name, test.most+1, err)
		}
	}
}
