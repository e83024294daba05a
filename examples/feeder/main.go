// Command feeder reports what kubelets, the scheduler and controllers report
// while Pods come and go, through client-go's own recorders of tools/record and
// tools/events. Nothing in it knows eventd: which server it reports to is a
// matter of the kubeconfig or, in a Pod, of two flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/examples/internal/clientconfig"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "feeder: %v\n", err)
		os.Exit(1)
	}
}

// settings are the flags.
type settings struct {
	kubeconfig, server, certificateAuthority string
	namespace                                string
	rate                                     float64
	duration                                 time.Duration
}

func parse(args []string) (settings, error) {
	var s settings
	fs := flag.NewFlagSet("feeder", flag.ContinueOnError)
	fs.StringVar(&s.kubeconfig, "kubeconfig", "", "`file` that says where the server is and who reports (default: as kubectl finds it, or the ServiceAccount of the Pod)")
	fs.StringVar(&s.server, "server", "", "`URL` of another server than the kubeconfig's: that of an eventd")
	fs.StringVar(&s.certificateAuthority, "certificate-authority", "", "`file` that this other server's certificate is verified with")
	fs.StringVar(&s.namespace, "namespace", "default", "`namespace` of the Pods")
	fs.Float64Var(&s.rate, "rate", 10, "how many things happen per second")
	fs.DurationVar(&s.duration, "duration", 0, "when to end; 0 is not before Ctrl-C")
	switch err := fs.Parse(args); {
	case err != nil:
		return s, err
	case fs.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case !(s.rate > 0):
		return s, fmt.Errorf("-rate must be greater than 0, got %v", s.rate)
	case s.duration < 0:
		return s, fmt.Errorf("-duration must not be negative, got %s", s.duration)
	}
	return s, nil
}

// run reports at a rate until the duration is over or ctx ends. What the
// recorders have not sent by then is lost: that is how they are made.
func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	config, err := clientconfig.Load(s.kubeconfig, rest.InClusterConfig)
	if err != nil {
		return err
	}
	config = clientconfig.ForServer(config, s.server, s.certificateAuthority)
	config.UserAgent = "feeder"
	// client-go's default of 5 requests per second would be all that is seen.
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	report, stop, err := startReporters(client)
	if err != nil {
		return err
	}
	defer stop()
	if s.duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.duration)
		defer cancel()
	}

	fmt.Fprintf(out, "reporting to %s, %v per second\n", config.Host, s.rate)
	story := newStory(s.namespace, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())))
	limiter := rate.NewLimiter(rate.Limit(s.rate), 1)
	told := 0
	// The limiter also fails when its next turn would come after the deadline.
	for limiter.Wait(ctx) == nil {
		report(story.next())
		told++
	}
	fmt.Fprintf(out, "%d things happened\n", told)
	return nil
}
