package app

import (
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version/verflag"
)

// Flags returns the flags that write into o, in the groups of --help.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets

	o.addClusterFlags(sets.FlagSet("cluster"))
	o.addIntakeFlags(sets.FlagSet("intake"))
	o.addCorrelationFlags(sets.FlagSet("correlation"))
	o.addWritingFlags(sets.FlagSet("writing"))
	o.addElectionFlags(sets.FlagSet("leader election"))
	o.addLifecycleFlags(sets.FlagSet("lifecycle"))
	o.addServingFlags(sets.FlagSet("secure serving"))

	authentication := sets.FlagSet("authentication")
	o.Authentication.AddFlags(authentication)
	defaultsToKubeconfig(authentication.Lookup("authentication-kubeconfig"))
	authorization := sets.FlagSet("authorization")
	o.Authorization.AddFlags(authorization)
	defaultsToKubeconfig(authorization.Lookup("authorization-kubeconfig"))

	logsapi.AddFlags(o.Logs, sets.FlagSet("logs"))
	global := sets.FlagSet("global")
	verflag.AddFlags(global)
	globalflag.AddGlobalFlags(global, "eventd", logs.SkipLoggingConfigurationFlags())
	return sets
}

func (o *Options) addClusterFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"Kubeconfig of the apiserver that Events are written to. Without it eventd must run in a Pod, and uses that Pod's cluster and ServiceAccount.")
}

func (o *Options) addIntakeFlags(fs *pflag.FlagSet) {
	fs.Var(bytesValue{&o.Intake.MaxBodyBytes}, "max-request-body-bytes",
		"The largest request body that is read; a larger one is answered 413. A quantity such as 512Ki.")
	fs.Var(bytesValue{&o.Intake.MaxDecodeBytes}, "max-decode-bytes",
		"How much memory may be allocated for all request bodies that are being decoded, each counted with the most that it can take. What waits for longer than a second is answered 429. A single body may always be decoded. A quantity such as 128Mi.")
	fs.IntVar(&o.MaxRequestsInFlight, "max-requests-inflight", o.MaxRequestsInFlight,
		"How many requests of known callers are in flight at once, those that wait included; one tenant may have half of them at most. What is more is answered 429.")
	fs.IntVar(&o.Intake.MaxNames, "max-client-names", o.Intake.MaxNames,
		"How many Event names that clients posted are remembered, so that a later patch of such a name is understood.")
}

func (o *Options) addCorrelationFlags(fs *pflag.FlagSet) {
	c := &o.Pipeline.Correlator
	fs.IntVar(&c.Burst, "budget-burst", c.Burst,
		"How many writes a source may cause at once about one object and type. What is more waits, and is not lost.")
	fs.Var(rateValue{&c.QPS}, "budget-qps",
		`How many writes per second it may cause in the long run: a number greater than 0, a fraction, or "unlimited".`)
	fs.IntVar(&c.MaxMessages, "aggregate-max-messages", c.MaxMessages,
		"How many different messages make Events that differ by nothing else similar: this one and all that follow are counted on one combined Event.")
	fs.DurationVar(&c.Interval, "aggregate-interval", c.Interval,
		"How long similar Events must be quiet to have Events of their own again.")
	fs.DurationVar(&c.Heartbeat, "series-heartbeat", c.Heartbeat,
		"How long the count of a series in the apiserver may be behind, while its budget lasts.")
	fs.IntVar(&c.CacheSize, "max-subjects", c.CacheSize,
		"How many combinations of a user, a source and an object are remembered. It saves requests; counts do not rest on it.")
	fs.IntVar(&c.MaxSeries, "max-series-per-subject", c.MaxSeries,
		"How many series of one source about one object are remembered, and how many of them may wait for its budget; what comes on top is dropped, and counted so.")
}

func (o *Options) addWritingFlags(fs *pflag.FlagSet) {
	sink := &o.Pipeline.Sink
	fs.IntVar(&o.Pipeline.QueueCapacity, "queue-capacity", o.Pipeline.QueueCapacity,
		"How many occurrences may wait between the intake and the correlator.")
	fs.Var(rateValue{&sink.QPS}, "kube-api-qps",
		`How many requests per second go to the apiserver to write Events: a number greater than 0, or "unlimited".`)
	fs.IntVar(&sink.Burst, "kube-api-burst", sink.Burst,
		"How many of these requests may go at once after a quiet time. At least 1; of no effect when --kube-api-qps is unlimited.")
	fs.IntVar(&sink.Concurrency, "max-concurrent-writes", sink.Concurrency,
		"How many series are worked on at once at most, with one request each; three quarters of that in one namespace. There are fewer while the apiserver shows that it has too much to do.")
	fs.IntVar(&sink.MinConcurrency, "min-concurrent-writes", sink.MinConcurrency,
		"How few it becomes at the least.")
	fs.DurationVar(&sink.SlowAnswer, "slow-answer", sink.SlowAnswer,
		"How long the apiserver must take for its answers on average to show that it has too much to do, or that their namespace is to be given less room.")
	fs.DurationVar(&sink.NamespaceRefusedFor, "namespace-refused-for", sink.NamespaceRefusedFor,
		"How long no Event is created in a namespace that the apiserver has said is missing or being deleted. What comes meanwhile waits.")
	fs.DurationVar(&sink.RequestTimeout, "write-timeout", sink.RequestTimeout,
		"How long one request to the apiserver may take before it counts as lost and is tried again.")
	fs.DurationVar(&sink.RetryBaseDelay, "retry-base-delay", sink.RetryBaseDelay,
		"The wait before the first retry of a write; it grows with every further one.")
	fs.DurationVar(&sink.RetryMaxDelay, "retry-max-delay", sink.RetryMaxDelay,
		"The longest wait between two tries of a write.")
	fs.DurationVar(&sink.RetryFor, "retry-for", sink.RetryFor,
		"How long the writing of a series may fail before its occurrences are given up, and counted so.")
	fs.IntVar(&sink.MaxPendingSeries, "max-pending-series", sink.MaxPendingSeries,
		"How many series may have something to be written at a time. When there are as many, each namespace and each user has an equal share; what comes on top is dropped, and counted so.")
	fs.Var(bytesValue{&sink.MaxPendingBytes}, "max-pending-bytes",
		"How much memory the occurrences that are to be written may take. When it is taken, each namespace and each user has an equal share; what comes on top is dropped, and counted so. A quantity such as 192Mi.")
	fs.DurationVar(&sink.ForbiddenFor, "forbidden-for", sink.ForbiddenFor,
		"How long an answer that RBAC does not allow a write is not believed: an apiserver that has just started gives it until it has read its rules.")
	fs.IntVar(&sink.MaxIdleSeries, "max-idle-series", sink.MaxIdleSeries,
		"How many series without anything to write are remembered. It saves requests; counts do not rest on it.")
}

func (o *Options) addElectionFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect,
		"Whether this is one of several replicas: one of them leads, and the others pass on to it what they receive. false runs alone.")
	l := &o.LeaderElection
	fs.DurationVar(&l.LeaseDuration, "leader-elect-lease-duration", l.LeaseDuration,
		"How long a leader that is not heard of is respected by the others: what a crash of it costs. A whole number of seconds.")
	fs.DurationVar(&l.RenewDeadline, "leader-elect-renew-deadline", l.RenewDeadline,
		"How long a leader goes on without having renewed its lease. Less than --leader-elect-lease-duration.")
	fs.DurationVar(&l.RetryPeriod, "leader-elect-retry-period", l.RetryPeriod,
		"The time between two renewals, and between two looks at the lease by a replica that its watch tells nothing.")
	fs.StringVar(&l.ResourceName, "leader-elect-resource-name", l.ResourceName,
		"The name of the Lease. deploy/ gives the rights to the one of the default name only.")
	fs.StringVar(&l.ResourceNamespace, "leader-elect-resource-namespace", l.ResourceNamespace,
		"The namespace of the Lease.")
	fs.Var(onLostValue{&l.OnLost}, "on-lost-lease",
		`What a leader does that has lost its lease: "standby" or "exit", which ends the process in order, with exit code 1. Either way it takes nothing new, and what it owes is written.`)
	fs.StringVar(&l.PeerTokenFile, "peer-token-file", l.PeerTokenFile,
		"File with a token of eventd's own ServiceAccount for --peer-audience, which replicas show each other: a projected volume. It may change. Required with --leader-elect.")
	fs.StringVar(&l.PeerAudience, "peer-audience", l.PeerAudience,
		"The audience that these tokens are for; none of the apiserver's own.")
	fs.StringVar(&l.AdvertiseAddress, "advertise-address", l.AdvertiseAddress,
		"Where other replicas reach this one, HOST or HOST:PORT. By default --bind-address, or the host's own if that is unspecified, and the port that is served on.")
}

func (o *Options) addLifecycleFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", o.ShutdownDelay,
		"How long the process goes on serving after SIGTERM while /readyz fails, so that nobody is sent to it any more once it does not. A leader hands over at once; meanwhile it passes on what it receives. Part of --shutdown-grace-period.")
	fs.DurationVar(&o.ShutdownGracePeriod, "shutdown-grace-period", o.ShutdownGracePeriod,
		"How long the process may take from SIGTERM to its end. What was accepted is written within it; what could not be is reported, and the exit code is 1.")
	fs.StringVar(&o.EndpointKubeconfig, "endpoint-kubeconfig", o.EndpointKubeconfig,
		"File to write a kubeconfig to, once requests are served, that leads to this eventd: its URL and what its certificate is verified with, without credentials. It is removed when that ends.")
}

func (o *Options) addServingFlags(fs *pflag.FlagSet) {
	o.SecureServing.AddFlags(fs)
	fs.IntVar(&o.MaxConnections, "max-connections", o.MaxConnections,
		"How many connections are open at once, of clients and of other replicas; one address, or /64 with IPv6, may have a third of them at most. What is more is closed as soon as it is made.")
	// The kube components can do without serving; eventd cannot, and 0 is of
	// more use as the port that is certainly free.
	fs.Lookup("secure-port").Usage = "The port on which to serve HTTPS with authentication and authorization. 0 takes a free one: see --endpoint-kubeconfig."
	fs.Lookup("cert-dir").Usage += " If neither this nor those are given, a self-signed certificate is made at every start and kept in memory."
}

func defaultsToKubeconfig(f *pflag.Flag) {
	f.Usage += " If empty, --kubeconfig is used."
}
