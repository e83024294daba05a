package hostile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/cmd/kubectl-eventd/client"
	"github.com/eventd/eventd/cmd/kubectl-eventd/page"
	"github.com/eventd/eventd/test/request"
)

const (
	// viewersEnv makes this binary a process of viewers.
	viewersEnv = "EVENTD_TEST_VIEWERS"
	// awaiting is the answer to an order: the tails look for what it names.
	awaiting = "awaiting"
	// awaitTimeout is for all tails to have an Event.
	awaitTimeout = 30 * time.Second
)

// viewer is a user that watches.
type viewer struct {
	Host, Token string
	TLS         rest.TLSClientConfig
}

func (v viewer) config() *rest.Config {
	return &rest.Config{Host: v.Host, BearerToken: v.Token, TLSClientConfig: v.TLS}
}

// view opens the tails and the page of the users that stdin begins with. Each further line is an order: the name of
// an Event, which it prints when all tails have got it. It returns when stdin ends, and prints what has failed.
func view() error {
	orders := bufio.NewScanner(os.Stdin)
	orders.Buffer(nil, 1<<20)
	if !orders.Scan() {
		return errors.New("no users")
	}
	var users []viewer
	if err := json.Unmarshal(orders.Bytes(), &users); err != nil {
		return err
	}
	ctx, leave := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer leave()
	watch := func(what string, f func() error) {
		watching.Go(func() {
			if err := f(); err != nil && ctx.Err() == nil {
				fmt.Println(what, err)
			}
		})
	}
	var tails []*tail
	for i := 1; i < tailUsers*tailsOfAUser; i++ {
		one := &tail{viewer: users[i%tailUsers], seen: make(chan struct{}, 1)}
		tails = append(tails, one)
		watch("a tail:", func() error { return one.read(ctx) })
	}
	watch("the page:", func() error { return users[tailUsers].look(ctx) })
	for orders.Scan() {
		last := bytes.Clone(orders.Bytes())
		for _, one := range tails {
			one.awaited.Store(&last)
		}
		fmt.Println(awaiting)
		timeout := time.After(awaitTimeout)
		for _, one := range tails {
			select {
			case <-one.seen:
			case <-timeout:
				return fmt.Errorf("a tail has not got %s", last)
			}
		}
		fmt.Println(string(last))
	}
	return nil
}

// tail is one that reads, with a connection of its own, as that of kubectl.
type tail struct {
	viewer
	awaited atomic.Pointer[[]byte] // nil after it has come
	seen    chan struct{}          // has an element when it has come
}

// read reads until ctx ends. As kubectl does, it asks again when it is told to retry: until they are authenticated, all
// viewers are unknown callers of one address.
func (w *tail) read(ctx context.Context) error {
	config := w.config()
	config.ContentConfig = rest.ContentConfig{GroupVersion: &schema.GroupVersion{}, NegotiatedSerializer: scheme.Codecs}
	tlsConfig, err := rest.TLSConfigFor(config)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	config.TLSClientConfig, config.Transport = rest.TLSClientConfig{}, transport
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return err
	}
	body, err := client.Get().RequestURI(tailPath).Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewReaderSize(body, 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("one that is read has ended: %w", err)
		}
		if last := w.awaited.Load(); last != nil && bytes.Contains(line, *last) && bytes.Contains(line, []byte(`"event":{`)) {
			w.awaited.Store(nil)
			w.seen <- struct{}{}
		}
	}
}

// look opens the page in a browser that shows all views, each updated every second, until ctx ends.
func (v viewer) look(ctx context.Context) error {
	eventd, err := client.New(v.config(), client.Options{LeaseNamespace: "-", LeaseName: "-", Connect: client.ConnectAPIServer})
	if err != nil {
		return err
	}
	defer eventd.Close()
	ctx, cancel := context.WithCancel(ctx)
	opened, served := make(chan string, 1), make(chan error, 1)
	go func() {
		served <- page.Serve(ctx, page.Options{Backend: eventd, Open: func(address string) { opened <- address }})
	}()
	jar, _ := cookiejar.New(nil) // its error is always nil
	browser := &http.Client{Jar: jar}
	defer browser.CloseIdleConnections()
	var base *url.URL
	select {
	case address := <-opened:
		if base, err = url.Parse(address); err == nil {
			err = get(ctx, browser, address)
		}
	case err = <-served:
		served <- err
	}
	var streaming sync.WaitGroup
	if err == nil {
		at := func(path string) string { return "http://" + base.Host + path }
		streaming.Go(func() { request.Do(ctx, browser, http.MethodGet, at("/tail/stream?include=events,steps"), "") })
		err = lookAtAll(ctx, browser, at)
	}
	cancel()
	streaming.Wait()
	return errors.Join(err, <-served)
}

// lookAtAll gets each view every second until ctx ends.
func lookAtAll(ctx context.Context, browser *http.Client, at func(string) string) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		for _, view := range []string{"/", "/top", "/drops", "/tail"} {
			if err := get(ctx, browser, at(view)); err != nil {
				return err
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func get(ctx context.Context, browser *http.Client, address string) error {
	if got := request.Do(ctx, browser, http.MethodGet, address, ""); got.Code != http.StatusOK {
		return fmt.Errorf("%s is answered %v", address, got)
	}
	return nil
}
