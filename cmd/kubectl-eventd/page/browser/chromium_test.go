package browser

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
)

// chromium is a running browser, which is controlled by the DevTools protocol over a pipe.
type chromium struct {
	to io.Writer

	mu      sync.Mutex
	sent    int
	waiting map[int]chan message
	events  map[string]func(json.RawMessage) // by session and method
}

// message is one of the protocol.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// find returns the path of a Chromium.
func find() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no chromium in PATH; Debian's package chromium has it")
}

// launch starts a browser, which ends with the test.
func launch(t *testing.T) *chromium {
	t.Helper()
	path, err := find()
	if err != nil {
		t.Fatal(err)
	}
	read, toBrowser, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromBrowser, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(),
		"--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run", "--disable-background-networking", "--force-color-profile=srgb")
	cmd.ExtraFiles = []*os.File{read, write} // 3 and 4
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read.Close()
	write.Close()
	c := &chromium{to: toBrowser, waiting: map[int]chan message{}, events: map[string]func(json.RawMessage){}}
	var reading sync.WaitGroup
	reading.Go(func() { c.read(fromBrowser) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if _, err := c.call(ctx, "", "Browser.close", nil); err != nil {
			cmd.Process.Kill()
		}
		toBrowser.Close()
		cmd.Wait()
		reading.Wait()
		fromBrowser.Close()
	})
	return c
}

// read passes on answers and events until the browser ends.
func (c *chromium) read(from io.Reader) {
	all := bufio.NewReaderSize(from, 1<<20)
	for {
		data, err := all.ReadBytes(0)
		if err != nil {
			c.mu.Lock()
			for id, to := range c.waiting {
				delete(c.waiting, id)
				close(to)
			}
			c.waiting = nil
			c.mu.Unlock()
			return
		}
		var m message
		if json.Unmarshal(data[:len(data)-1], &m) != nil {
			continue
		}
		c.mu.Lock()
		to, event := c.waiting[m.ID], c.events[m.SessionID+m.Method]
		delete(c.waiting, m.ID)
		c.mu.Unlock()
		switch {
		case to != nil:
			to <- m
		case event != nil:
			event(m.Params)
		}
	}
}

func (c *chromium) call(ctx context.Context, session, method string, params any) (json.RawMessage, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	if params == nil {
		raw = nil
	}
	answer := make(chan message, 1)
	c.mu.Lock()
	c.sent++
	m := message{ID: c.sent, SessionID: session, Method: method, Params: raw}
	data, err := json.Marshal(m)
	if c.waiting == nil {
		err = errors.New("the browser has ended")
	}
	if err == nil {
		c.waiting[m.ID] = answer
		_, err = c.to.Write(append(data, 0))
	}
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case m, ok := <-answer:
		if !ok {
			return nil, fmt.Errorf("%s: the browser has ended", method)
		}
		if m.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		return m.Result, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", method, ctx.Err())
	}
}

// tab is a tab of a browser.
type tab struct {
	*chromium
	t       *testing.T
	session string

	mu sync.Mutex
	// complaints are errors of the script, and violations of the policy.
	complaints []string
}

// settings are how a tab is shown.
type settings struct {
	width, height int
	scheme        string // light or dark
}

var (
	desktop = settings{1280, 900, "light"}
	phone   = settings{390, 844, "light"}
)

// open opens a tab without cookies of others.
func (c *chromium) open(t *testing.T, s settings) *tab {
	t.Helper()
	b := &tab{chromium: c, t: t}
	var context struct{ BrowserContextID string }
	b.do("Target.createBrowserContext", nil, &context)
	var target struct{ TargetID string }
	b.do("Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": context.BrowserContextID}, &target)
	var attached struct{ SessionID string }
	b.do("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	c.mu.Lock()
	for _, method := range []string{"Runtime.exceptionThrown", "Log.entryAdded"} {
		c.events[b.session+method] = b.complain
	}
	c.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.do(domain+".enable", nil, nil)
	}
	b.show(s)
	b.do("Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true}, nil)
	return b
}

// show changes how the tab is shown.
func (b *tab) show(s settings) {
	b.t.Helper()
	b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": s.width, "height": s.height, "deviceScaleFactor": 1, "mobile": s.width < 600}, nil)
	b.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": s.scheme}}}, nil)
}

func (b *tab) complain(params json.RawMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.complaints = append(b.complaints, string(params))
}

// wantSilence checks that nothing was wrong in the console.
func (b *tab) wantSilence() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		b.t.Errorf("the browser complains: %s", c)
	}
}

func (b *tab) do(method string, params, result any) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), await.Timeout)
	defer cancel()
	answer, err := b.call(ctx, b.session, method, params)
	if err == nil && result != nil {
		err = json.Unmarshal(answer, result)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// visit loads an address.
func (b *tab) visit(address string) {
	b.t.Helper()
	var out struct{ ErrorText string }
	b.do("Page.navigate", map[string]any{"url": address}, &out)
	if out.ErrorText != "" {
		b.t.Fatalf("%s: %s", address, out.ErrorText)
	}
	await.Until(b.t, "the page is loaded", func() bool { return b.is(`document.readyState === 'complete' && location.href !== 'about:blank'`) })
}

// eval returns the value of an expression.
func (b *tab) eval(expression string, into any) {
	b.t.Helper()
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.do("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out)
	if out.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, out.ExceptionDetails)
	}
	if into != nil {
		if err := json.Unmarshal(out.Result.Value, into); err != nil {
			b.t.Fatalf("%s is %s: %v", expression, out.Result.Value, err)
		}
	}
}

// is returns whether an expression is true.
func (b *tab) is(expression string) (yes bool) {
	b.t.Helper()
	b.eval("Boolean("+expression+")", &yes)
	return yes
}

// until waits until an expression is true.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	await.Until(b.t, what, func() bool { return b.is(expression) })
}

// key presses a key.
func (b *tab) key(key string) {
	b.t.Helper()
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key}
		if kind == "keyDown" && len(key) == 1 {
			params["text"] = key
		}
		if key == "Tab" {
			params["windowsVirtualKeyCode"] = 9
		}
		b.do("Input.dispatchKeyEvent", params, nil)
	}
}

// screenshot returns a picture of the page of a size, or of the whole page.
func (b *tab) screenshot(width, height int) []byte {
	b.t.Helper()
	params := map[string]any{"format": "png", "captureBeyondViewport": true}
	if height > 0 {
		params["clip"] = map[string]any{"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
	}
	var out struct{ Data string }
	b.do("Page.captureScreenshot", params, &out)
	data, err := base64.StdEncoding.DecodeString(out.Data)
	if err != nil {
		b.t.Fatal(err)
	}
	return data
}
