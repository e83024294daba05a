package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/eventd/eventd/cmd/kubectl-eventd/client"
	"github.com/eventd/eventd/cmd/kubectl-eventd/terminal"
)

// view is a command that shows one object: once, or on a terminal again whenever it changes.
type view struct {
	*plugin
	once     bool
	stale    bool // what is rendered is the last answer: more is not known
	resource string
	// namespace is that of the query, "" for all.
	namespace string
	// render prints an object as a table.
	render func(raw []byte, out io.Writer) error
}

func (v *view) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&v.once, "once", false, "Print once, also on a terminal.")
}

// show runs the command.
func (v *view) show(ctx context.Context, query url.Values) error {
	c, err := v.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	if screen := terminal.NewScreen(v.Out); screen != nil && !v.once && !v.structured() {
		return v.live(ctx, c, query, screen)
	}
	var raw json.RawMessage
	if err := c.Get(ctx, v.resource, query, &raw); err != nil {
		return v.explain(err, v.resource, query)
	}
	if v.structured() {
		return v.format.object(v.Out, raw)
	}
	return v.render(raw, v.Out)
}

// redraw is how often ages are drawn again.
const redraw = time.Second

// live draws each object of a watch until ctx ends. The screen is taken at the first one, so that an error
// before it stays on the terminal.
func (v *view) live(ctx context.Context, c *client.Pair, query url.Values, screen *terminal.Screen) error {
	news := make(chan update)
	group, ctx := errgroup.WithContext(ctx)
	report := func(u update) {
		select {
		case news <- u:
		case <-ctx.Done():
		}
	}
	group.Go(func() error {
		return c.Follow(ctx, client.Follow{
			Resource: v.resource, Query: query,
			Handle: func(frame metav1.WatchEvent) error {
				if frame.Type != string(watch.Bookmark) {
					report(update{raw: frame.Object.Raw, at: time.Now()})
				}
				return nil
			},
			Waiting:      v.waiting,
			Disconnected: func(err error) { report(update{err: err}) },
		})
	})
	group.Go(func() error { return v.draw(ctx, news, screen) })
	return v.explain(group.Wait(), v.resource, query)
}

// update is an object, or why none comes.
type update struct {
	raw []byte
	at  time.Time
	err error
}

func (v *view) draw(ctx context.Context, news <-chan update, screen *terminal.Screen) error {
	var shown update
	opened := false
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	for {
		select {
		case u := <-news:
			if u.err != nil {
				shown.err = u.err
			} else {
				shown = u
			}
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if shown.raw == nil {
			continue
		}
		if !opened {
			opened = true
			screen.Open()
			defer screen.Close()
		}
		var b bytes.Buffer
		if v.stale = shown.err != nil; v.stale {
			fmt.Fprintf(&b, "STALE since %s, reconnecting: %s\n\n", shown.at.Format(time.TimeOnly), terminal.Text(shown.err.Error()))
		}
		if err := v.render(shown.raw, &b); err != nil {
			return err
		}
		screen.Draw(b.String())
	}
}
