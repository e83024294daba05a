// Command poster posts Events at a rate from a Pod, each about another object, and each until it is
// accepted. Its last line is a Result as JSON.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Result is what became of a run.
type Result struct {
	Posted   int            `json:"posted"`
	Accepted int            `json:"accepted"`
	Failed   map[string]int `json:"failed"` // attempts, by status or error
	// Longest is the longest time in seconds in which nothing was accepted.
	Longest float64 `json:"longest"`
	// Slowest is the longest time in seconds from the first attempt of a post to its acceptance.
	Slowest float64 `json:"slowest"`
}

const server = "https://eventd.kube-system.svc"

// maxBackoff is the longest time between two attempts, unless the server asks for more.
const maxBackoff = 8 * time.Second

// giveUp is how long a post is repeated.
const giveUp = 3 * time.Minute

type poster struct {
	client         *http.Client
	namespace, run string

	mu       sync.Mutex
	result   Result
	accepted []time.Time
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "poster:", err)
		os.Exit(1)
	}
}

func run() error {
	authority := flag.String("certificate-authority", "", "`file` that its certificate is verified with")
	namespace := flag.String("namespace", "", "`namespace` of the Events")
	name := flag.String("run", "", "`name` of the run, which is the reason of its Events")
	rate := flag.Int("rate", 50, "`posts` per second")
	duration := flag.Duration("duration", time.Minute, "when to end; SIGTERM ends it sooner")
	var get []string
	flag.Func("get", "`URL` whose content is printed, in place of all else; may be repeated", func(url string) error {
		get = append(get, url)
		return nil
	})
	stop := flag.Bool("stop", false, "end the poster that is PID 1 of this container")
	flag.Parse()
	if *stop {
		return syscall.Kill(1, syscall.SIGTERM)
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	config.Host, config.TLSClientConfig = server, rest.TLSClientConfig{CAFile: *authority}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	client.Timeout = 10 * time.Second
	if get != nil {
		return print(client, get)
	}
	ctx, forget := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer forget()
	ctx, cancel := context.WithTimeout(ctx, *duration)
	defer cancel()

	p := &poster{client: client, namespace: *namespace, run: *name, result: Result{Failed: map[string]int{}}}
	began := time.Now()
	var posts sync.WaitGroup
	tick := time.NewTicker(time.Second / time.Duration(*rate))
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			continue
		}
		number := p.result.Posted
		p.result.Posted++
		posts.Go(func() { p.post(number) })
	}
	ended := time.Now()
	posts.Wait()
	return json.NewEncoder(os.Stdout).Encode(p.finish(began, ended))
}

// print prints what is answered.
func print(client *http.Client, urls []string) error {
	for _, url := range urls {
		resp, err := client.Get(url)
		for began := time.Now(); err != nil && time.Since(began) < giveUp; resp, err = client.Get(url) {
			time.Sleep(time.Second) // such as for a certificate that has just been replaced
		}
		if err != nil {
			return err
		}
		fmt.Println(resp.Status)
		_, err = io.Copy(os.Stdout, resp.Body)
		resp.Body.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// finish returns the result of all posts.
func (p *poster) finish(began, ended time.Time) Result {
	times := append(p.accepted, began, ended)
	slices.SortFunc(times, time.Time.Compare)
	for i := range times[1:] {
		p.result.Longest = max(p.result.Longest, times[i+1].Sub(times[i]).Seconds())
	}
	p.result.Accepted = len(p.accepted)
	return p.result
}

// post posts an Event until it is accepted: 409 says that an earlier attempt was, whose answer was lost.
func (p *poster) post(number int) {
	began := time.Now()
	body, err := json.Marshal(p.event(number))
	if err != nil {
		panic(err)
	}
	backoff := time.Second
	for time.Since(began) < giveUp {
		wait, failure := p.attempt(body)
		wait, backoff = max(wait, backoff), min(2*backoff, maxBackoff)
		p.mu.Lock()
		if failure == "" {
			now := time.Now()
			p.accepted = append(p.accepted, now)
			p.result.Slowest = max(p.result.Slowest, now.Sub(began).Seconds())
			p.mu.Unlock()
			return
		}
		p.result.Failed[failure]++
		if p.result.Failed[failure] == 1 {
			fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), failure)
		}
		p.mu.Unlock()
		time.Sleep(wait)
	}
}

// attempt returns why an attempt has failed, and after how long to repeat it.
func (p *poster) attempt(body []byte) (wait time.Duration, failure string) {
	resp, err := p.client.Post(server+"/api/v1/namespaces/"+p.namespace+"/events", "application/json", bytes.NewReader(body))
	if err != nil {
		for inner := err; inner != nil; inner = errors.Unwrap(inner) {
			err = inner
		}
		return 0, err.Error()
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	switch {
	case resp.StatusCode/100 == 2, resp.StatusCode == http.StatusConflict:
		return 0, ""
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode/100 == 5:
		failure = strconv.Itoa(resp.StatusCode)
	default:
		failure = fmt.Sprintf("%d %s", resp.StatusCode, answer)
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second, failure
}

func (p *poster) event(number int) *corev1.Event {
	now := metav1.Now()
	object := fmt.Sprintf("%s-%d", p.run, number)
	return &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Name: object, Namespace: p.namespace},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.namespace, Name: object},
		Reason:         p.run, Message: "posted " + object, Type: corev1.EventTypeNormal,
		Source:         corev1.EventSource{Component: "poster"},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}
