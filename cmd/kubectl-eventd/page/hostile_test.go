package page_test

import (
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/pagetest"
)

// hostile is what who may create an Event puts into it.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>{{.}}'-->` + "\x1b]0;owned\a\u202etxt\u2066\x00\r\n"

func TestHostileTextsShowAsText(t *testing.T) {
	for name, bad := range map[string]string{"markup": hostile, "long": strings.Repeat("<b>\x1b\u202e", 15_000)} {
		b := pagetest.NewBackend()
		for resource, answer := range map[string]any{
			"status": pagetest.BusyStatus(time.Now()), "top": answerOf[v1alpha1.Top](t, "top"), "drops": answerOf[v1alpha1.DropList](t, "drops"),
			"why": answerOf[v1alpha1.Explanation](t, "why"), "timeline": answerOf[v1alpha1.Timeline](t, "timeline"),
		} {
			spoil(reflect.ValueOf(answer), bad)
			b.Set(resource, answer)
		}
		v := serve(t, b)
		shown := views
		if name == "long" {
			shown = []string{"/", "/drops", "/object?name=web"}
		}
		for _, path := range append(shown, "/tail?match="+url.QueryEscape(bad[:min(len(bad), 5000)])) {
			t.Run(name+" "+path[:min(len(path), 20)], func(t *testing.T) {
				_, body := v.get(t, path)
				wantHarmless(t, body)
				if len(body) > 8<<20 {
					t.Errorf("%d bytes", len(body))
				}
			})
		}
		_, body := v.get(t, "/drops")
		if name == "markup" {
			wantWords(t, body, `"><script>alert(1)</script><img src=x onerror=alert(1)>{{.}}'-->␛]0;owned␇‹U+202E›txt‹U+2066›␀␍ ↵`)
		}
	}
}

// answerOf returns an answer of a busy eventd.
func answerOf[T any](t *testing.T, resource string) *T {
	t.Helper()
	var out T
	if err := pagetest.Busy(time.Now()).Get(t.Context(), resource, nil, &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

// spoil replaces all strings in an object, but for those that the API defines.
func spoil(v reflect.Value, bad string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			spoil(v.Elem(), bad)
		}
	case reflect.Slice:
		for i := range v.Len() {
			spoil(v.Index(i), bad)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			v.SetMapIndex(key, reflect.ValueOf(bad))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; v.Field(i).CanSet() && name != "Action" && name != "Outcome" {
				spoil(v.Field(i), bad)
			}
		}
	case reflect.String:
		v.SetString(bad)
	}
}

// wantHarmless checks that a page has only its own elements, nothing inline, and no character that acts on
// others.
func wantHarmless(t *testing.T, body string) {
	t.Helper()
	for _, r := range body {
		if r != '\n' && (r < 0x20 || r == 0x7f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069) {
			t.Errorf("the page has %U", r)
			break
		}
	}
	scripts := 0
	for n := range parse(t, body) {
		switch n.Data {
		case "script":
			if scripts++; attr(n, "src") != "/assets/page.js" || n.FirstChild != nil {
				t.Errorf("a script of %q", attr(n, "src"))
			}
		case "img":
			if attr(n, "src") != "/assets/icon.svg" {
				t.Errorf("an image of %q", attr(n, "src"))
			}
		case "style", "iframe", "object", "embed", "base":
			t.Errorf("an element %s", n.Data)
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || a.Key == "href" && !local(n, a.Val) {
				t.Errorf("%s has %s=%q", n.Data, a.Key, a.Val)
			}
		}
	}
	if scripts != 1 {
		t.Errorf("%d scripts", scripts)
	}
}

func local(n *html.Node, href string) bool {
	// Runbooks are elsewhere, and are not told from where they are opened.
	if n.Data == "a" && strings.HasPrefix(href, "https://github.com/eventd/eventd/blob/main/docs/") {
		return attr(n, "rel") == "noreferrer"
	}
	return href == "" || strings.HasPrefix(href, "/") && !strings.HasPrefix(href, "//") || href == "#live" && n.Data == "a"
}
