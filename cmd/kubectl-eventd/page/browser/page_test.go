package browser

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/eventd/eventd/cmd/kubectl-eventd/page"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/pagetest"
)

var screenshots = flag.String("screenshots", "", "`folder` for a screenshot of each view")

func TestMain(m *testing.M) {
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// serve runs the page until the test ends or stop is called, and returns its address.
func serve(t *testing.T, b page.Backend) (address string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	opened, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		if err := page.Serve(ctx, page.Options{Backend: b, Open: func(a string) { opened <- a }}); err != nil {
			t.Error(err)
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return <-opened, stop
}

func base(address string) string {
	b, _, _ := strings.Cut(address, "/open/")
	return b
}

// views are all, by the name of their screenshot.
var views = map[string]string{
	"status": "/", "top": "/top", "drops": "/drops", "object": "/object?kind=Pod&name=checkout-7d9f6c4b5-k2xwq&namespace=shop", "find": "/object", "tail": "/tail",
}

// Each view of each state, on a desktop and on a phone, light and dark: nothing in the console, nothing
// wider than the window, and every text with the contrast of WCAG AA.
func TestEveryViewIsReadable(t *testing.T) {
	browser := launch(t)
	for state, backend := range pagetest.Each {
		for _, shown := range []settings{desktop, phone, {1280, 900, "dark"}, {390, 844, "dark"}, {820, 1180, "light"}, {320, 640, "light"}} {
			t.Run(fmt.Sprintf("%s %dpx %s", state, shown.width, shown.scheme), func(t *testing.T) {
				address, _ := serve(t, backend(time.Now()))
				b := browser.open(t, shown)
				b.visit(address)
				for name, path := range views {
					b.visit(base(address) + path)
					b.until("the script runs", `document.getElementById('state').textContent !== ''`)
					b.wantReadable(name)
					b.keep(fmt.Sprintf("%s-%s-%d-%s", state, name, shown.width, shown.scheme))
				}
				if state != "failing" { // whose answers of 403 and 503 are in the console
					b.wantSilence()
				}
			})
		}
	}
}

// wantReadable checks the width of a view and its contrasts.
func (b *tab) wantReadable(name string) {
	b.t.Helper()
	if wide := 0; !b.is(`document.documentElement.scrollWidth <= innerWidth`) {
		b.eval(`document.documentElement.scrollWidth`, &wide)
		b.t.Errorf("%s is %d wide", name, wide)
	}
	var faint []string
	b.eval(contrast, &faint)
	for _, text := range faint {
		b.t.Errorf("%s: %s", name, text)
	}
}

// keep writes a screenshot, if there is a folder for them.
func (b *tab) keep(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), b.screenshot(0, 0), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// contrast lists texts whose contrast to what is behind them is below 4.5.
const contrast = `(() => {
  const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return m.length < 4 ? [...m, 1] : m; };
  const luminance = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c[3] > .99) return c; } return [255, 255, 255, 1]; };
  const out = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.nodeValue.trim() || !e.checkVisibility() || e.closest('noscript')) continue;
    const [a, b] = [luminance(parse(getComputedStyle(e).color)), luminance(behind(e))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) out.push(walk.currentNode.nodeValue.trim().slice(0, 40) + ': ' + ratio.toFixed(2));
  }
  return out;
})()`

func TestFiguresChangeInPlace(t *testing.T) {
	backend := pagetest.Busy(time.Now())
	var series atomic.Int64
	backend.SetFunc("status", func() (any, error) {
		s := pagetest.BusyStatus(time.Now())
		s.Stations[3].Queue.Length.Value = float64(1000 + series.Load())
		return s, nil
	})
	address, stop := serve(t, backend)
	b := launch(t).open(t, desktop)
	b.visit(address)
	b.until("the first figure", `document.querySelector('[data-metric=eventd_sink_pending_series]').value === '1000'`)
	b.eval(`(() => { window.card = document.querySelector('[data-key=sink]'); document.querySelector('[data-key=sink] summary').click(); document.querySelector('[data-key=sink] summary').focus(); })()`, nil)
	series.Store(7)
	b.until("the next figure", `document.querySelector('[data-metric=eventd_sink_pending_series]').value === '1007'`)
	if !b.is(`card.isConnected && card.querySelector('details').open && document.activeElement === card.querySelector('summary')`) {
		t.Error("the update has replaced what was in use")
	}
	b.key("p")
	b.until("paused", `document.getElementById('state').textContent === 'Paused'`)
	series.Store(8)
	if !b.is(`(() => {
		const ask = fetch;
		let asked = 0;
		window.fetch = (...all) => { asked++; return ask(...all); };
		document.dispatchEvent(new Event('visibilitychange')); // an update is due
		return asked === 0;
	})()`) {
		t.Error("a paused page asks")
	}
	b.key("p")
	b.until("it goes on", `document.querySelector('[data-metric=eventd_sink_pending_series]').value === '1008'`)
	b.wantSilence()

	stop()
	b.until("it is stale", `document.body.classList.contains('stale') && /^Stale: no answer for \d+ s/.test(document.getElementById('state').textContent)`)
	if !b.is(`document.querySelector('[data-metric=eventd_sink_pending_series]').value === '1008'`) {
		t.Error("the last figures are gone")
	}
	if !b.is(`document.querySelector('.headline h1').textContent.startsWith('Unknown since ') && [...document.querySelectorAll('.health')].every((badge) => badge.textContent === 'unknown')`) {
		t.Error("something is said to be well")
	}
	b.keep("stale")
}

func TestAPageThatCannotBeAnsweredComesBack(t *testing.T) {
	backend := pagetest.Failing(time.Now())
	address, _ := serve(t, backend)
	b := launch(t).open(t, desktop)
	b.visit(address)
	b.visit(base(address) + "/top")
	b.until("the problem", `document.querySelector('#problem h1').textContent.includes('may not see') && document.getElementById('state').textContent === 'Trying again'`)
	var top v1alpha1.Top
	if err := pagetest.Busy(time.Now()).Get(t.Context(), "top", nil, &top); err != nil {
		t.Fatal(err)
	}
	backend.Set("top", top)
	b.until("the table", `document.querySelectorAll('tbody tr').length === 6 && !document.getElementById('problem') && document.getElementById('state').textContent === 'Live'`)
}

func TestTheTailFollows(t *testing.T) {
	backend := pagetest.Busy(time.Now())
	address, _ := serve(t, backend)
	b := launch(t).open(t, desktop)
	b.visit(address)
	b.visit(base(address) + "/tail")
	stream := func(n int) (s *pagetest.Stream) {
		await.Until(t, "a watch", func() bool {
			last, opened := backend.Last()
			s = last
			return opened >= n
		})
		return s
	}
	event := func(version, message string) v1alpha1.TailItem {
		return v1alpha1.TailItem{ResourceVersion: version, Event: &v1alpha1.TimelineItem{Reason: "Killing", Message: message}}
	}
	first := stream(1)
	first.Send("ADDED", event("100", `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`))
	b.until("the Event", `document.querySelector('#tail li').textContent.includes('<img src=x onerror=')`)
	if b.is(`document.title.includes('owned') || document.querySelector('#tail img, #tail script')`) {
		t.Error("a message is not text")
	}
	b.key("p")
	b.until("paused", `document.getElementById('state').textContent === 'Paused'`)
	first.Send("ADDED", event("101", "while paused"))
	b.until("it is counted", `document.getElementById('state').textContent === 'Paused, 1 new'`)
	if b.is(`document.querySelector('#tail').textContent.includes('while paused')`) {
		t.Error("a paused tail moves")
	}
	b.key("p")
	b.until("it is shown", `document.querySelector('#tail li').textContent.includes('while paused')`)

	missing := v1alpha1.TailItem{Missing: "what is observed"} // is said once, however often the stream is opened again
	first.Send("BOOKMARK", missing)
	first.End()
	second := stream(2)
	second.Send("BOOKMARK", missing)
	second.Send("ADDED", event("102", "after that"))
	b.until("the Event after that", `document.querySelector('#tail li').textContent.includes('after that')`)
	if !b.is(`[...document.querySelectorAll('#tail li.note')].map((li) => li.textContent).join() === 'Missing: what is observed'`) {
		t.Error("what is missing is not said once")
	}
	if asked := backend.Asked(); !strings.Contains(asked[len(asked)-1], "resourceVersion=101&") {
		t.Errorf("it resumes by %s", asked[len(asked)-1])
	}
	for i := range 600 {
		second.Send("ADDED", event(fmt.Sprint(200+i), fmt.Sprint("number ", i)))
	}
	b.until("the last of many", `document.querySelector('#tail li').textContent.includes('number 599')`)
	if n := 0; !b.is(`document.querySelectorAll('#tail li').length === 500`) {
		b.eval(`document.querySelectorAll('#tail li').length`, &n)
		t.Errorf("%d lines", n)
	}
	b.wantSilence()
}

// The page is as live as eventd, which sends a bookmark every few seconds: this process alone is not enough.
func TestATailOfASilentEventdIsStale(t *testing.T) {
	backend := pagetest.Busy(time.Now())
	address, _ := serve(t, backend)
	b := launch(t).open(t, desktop)
	b.visit(address)
	b.visit(base(address) + "/tail")
	b.until("it is live", `document.getElementById('state').textContent === 'Live'`)
	var from *pagetest.Stream
	await.Until(t, "a watch", func() bool {
		from, _ = backend.Last()
		return from != nil
	})
	from.Hang()
	b.until("it is stale", `document.body.classList.contains('stale') && /^Stale: nothing from eventd for \d+ s/.test(document.getElementById('state').textContent)`)
	if !b.is(`document.querySelectorAll('#tail li').length > 0`) {
		t.Error("what was last is gone")
	}
	b.keep("stale-tail")
	from.Send("BOOKMARK", v1alpha1.TailItem{ResourceVersion: "101"})
	b.until("it is live again", `document.getElementById('state').textContent === 'Live' && !document.body.classList.contains('stale')`)
}

func TestThePageIsUsableByKeyboard(t *testing.T) {
	address, _ := serve(t, pagetest.Busy(time.Now()))
	b := launch(t).open(t, phone)
	b.visit(address)
	b.key("Tab")
	if !b.is(`document.activeElement.className === 'skip' && document.activeElement.getBoundingClientRect().top >= 0`) {
		t.Error("the first stop is not the skip link")
	}
	b.key("/")
	b.until("the search has the focus", `document.activeElement.id === 'search'`)
	for _, key := range "pod/p" {
		b.key(string(key))
	}
	if !b.is(`document.activeElement.value === 'pod/p' && !document.getElementById('state').textContent.startsWith('Paused')`) {
		t.Error("keys in a field are not text")
	}
	b.eval(`document.activeElement.form.requestSubmit()`, nil)
	b.until("the object", `location.search === '?kind=Pod&name=p' && document.querySelector('h1')?.textContent === 'Pod/p'`)
}
