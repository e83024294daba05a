package app

import (
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version/verflag"
)

// Flags returns the flags that set o, in the groups of --help.
func (o *Options) Flags() cliflag.NamedFlagSets {
	var sets cliflag.NamedFlagSets

	o.addProcessFlags(sets.FlagSet("process"))
	o.addIntakeFlags(sets.FlagSet("intake"))
	o.addCorrelationFlags(sets.FlagSet("correlation"))
	o.addWritingFlags(sets.FlagSet("writing"))
	o.addReplicationFlags(sets.FlagSet("replication"))
	o.addObservationFlags(sets.FlagSet("observation"))
	o.addSharedFlags(sets.FlagSet("both roles"))
	o.addElectionFlags(sets.FlagSet("leader election"))
	o.addLifecycleFlags(sets.FlagSet("lifecycle"))
	o.addServingCAFlags(sets.FlagSet("serving CA"))
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

func (o *Options) addProcessFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Role, "role", o.Role,
		`What this process is for: "intake" takes reports and writes them; "observe" observes, keeps and delivers what is stored; "all" does both.`)
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"Kubeconfig of the apiserver that Events are written to. Without it, eventd uses the cluster and the ServiceAccount of its Pod.")
}

func (o *Options) addIntakeFlags(fs *pflag.FlagSet) {
	fs.Var(bytesValue(&o.Intake.MaxBodyBytes), "max-request-body-bytes",
		"Maximum size of a request body. Larger ones are answered 413.")
	fs.Var(bytesValue(&o.Intake.MaxDecodeBytes), "max-decode-bytes",
		"Maximum memory for decoding request bodies, each counted at its worst case. A body that waits longer than a second is answered 429.")
	fs.Var(rateValue(&o.AccessReviewQPS), "access-review-qps",
		`Maximum number of SubjectAccessReviews per second for reports, with twice as many at once after a quiet time: a number greater than 0, or "unlimited". Reports wait for them, and above --max-requests-inflight are answered 429.`)
	fs.IntVar(&o.Intake.MaxNames, "max-client-names", o.Intake.MaxNames,
		"Maximum number of posted Event names that are remembered for later patches.")
}

func (o *Options) addCorrelationFlags(fs *pflag.FlagSet) {
	c := &o.Pipeline.Correlator
	fs.IntVar(&c.Burst, "budget-burst", c.Burst,
		"Maximum burst of writes of one user and source about one object and type. Further writes wait, as far as --max-series-per-subject allows.")
	fs.Var(rateValue(&c.QPS), "budget-qps",
		`Writes per second after the burst: a number greater than 0, a fraction, or "unlimited".`)
	fs.IntVar(&c.MaxMessages, "aggregate-max-messages", c.MaxMessages,
		"Number of messages after which Events that differ only in their message are combined into one Event.")
	fs.DurationVar(&c.Interval, "aggregate-interval", c.Interval,
		"Time without similar Events after which they get Events of their own again.")
	fs.DurationVar(&c.Heartbeat, "series-heartbeat", c.Heartbeat,
		"Maximum delay of the count of a series in the apiserver, while its budget lasts.")
	fs.IntVar(&c.CacheSize, "max-subjects", c.CacheSize,
		"Maximum number of remembered combinations of user, source and object. More save requests.")
	fs.IntVar(&c.MaxSeries, "max-series-per-subject", c.MaxSeries,
		"Maximum number of remembered series of one user and source about one object, and of those that wait for the budget. Further occurrences are dropped.")
}

func (o *Options) addWritingFlags(fs *pflag.FlagSet) {
	sink := &o.Pipeline.Sink
	fs.IntVar(&o.Pipeline.QueueCapacity, "queue-capacity", o.Pipeline.QueueCapacity,
		"Maximum number of occurrences that wait between the intake and the correlator.")
	fs.Var(rateValue(&sink.QPS), "kube-api-qps",
		`Maximum number of requests per second that write Events: a number greater than 0, or "unlimited".`)
	fs.IntVar(&sink.Burst, "kube-api-burst", sink.Burst,
		"Maximum burst of requests that write Events. Without effect if --kube-api-qps is unlimited.")
	fs.IntVar(&sink.Concurrency, "max-concurrent-writes", sink.Concurrency,
		"Upper bound of the adaptive concurrency limit: the number of series that are written at once. While some hang, up to half as many more are in flight.")
	fs.IntVar(&sink.MinConcurrency, "min-concurrent-writes", sink.MinConcurrency,
		"Lower bound of the adaptive concurrency limit.")
	fs.DurationVar(&sink.SlowAnswer, "slow-answer", sink.SlowAnswer,
		"Mean latency of the apiserver above which the concurrency limit, or the limit of a slow namespace, is decreased. A request without an answer for as long hangs if other namespaces are answered.")
	fs.DurationVar(&sink.NamespaceRefusedFor, "namespace-refused-for", sink.NamespaceRefusedFor,
		"Time between attempts to create Events in a namespace that is missing or terminating. Occurrences wait meanwhile.")
	fs.DurationVar(&sink.RequestTimeout, "write-timeout", sink.RequestTimeout,
		"Timeout of one request to the apiserver, which is retried then.")
	fs.DurationVar(&sink.RetryBaseDelay, "retry-base-delay", sink.RetryBaseDelay,
		"Delay before the first retry of a write. It grows with each retry.")
	fs.DurationVar(&sink.RetryMaxDelay, "retry-max-delay", sink.RetryMaxDelay,
		"Maximum delay between two retries of a write.")
	fs.DurationVar(&sink.RetryFor, "retry-for", sink.RetryFor,
		"Time after which the occurrences of a series that cannot be written are dropped and counted.")
	fs.IntVar(&sink.MaxPendingSeries, "max-pending-series", sink.MaxPendingSeries,
		"Maximum number of series with pending occurrences. At the limit, namespaces and tenants have equal shares, and further occurrences are dropped.")
	fs.Var(bytesValue(&sink.MaxPendingBytes), "max-pending-bytes",
		"Maximum memory of pending occurrences. At the limit, it acts like --max-pending-series.")
	fs.DurationVar(&sink.ForbiddenFor, "forbidden-for", sink.ForbiddenFor,
		"Time for which a 403 of RBAC is retried: a starting apiserver answers 403 until it has loaded its rules.")
	fs.IntVar(&sink.MaxIdleSeries, "max-idle-series", sink.MaxIdleSeries,
		"Maximum number of remembered series without pending occurrences. More save requests.")
}

func (o *Options) addReplicationFlags(fs *pflag.FlagSet) {
	fs.Var(acknowledgeValue(&o.Pipeline.Sink.Acknowledge), "acknowledge",
		`When a report is answered: "replicated", with 202, once another replica holds it; "committed", once it is written, or at once with 202 if the write is deferred; "received", at once with 202, and lost if the process dies before the write. While no other replica is known, "replicated" is "committed"; if none holds a deferred write within a second, that is made at once, or its client is answered 429.`)
	fs.Var(bytesValue(&o.MaxHeldBytes), "max-held-bytes",
		"Maximum memory of what this replica holds for others; 0 is what a leader may have pending. Above it, its clients wait for writes. Without effect with --leader-elect=false.")
}

func (o *Options) addObservationFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ClusterName, "cluster-name", o.ClusterName,
		"Name of the cluster in every record that is delivered. Required with receivers.")
	fs.Var(bytesValue(&o.HistoryBytes), "history-bytes",
		"Maximum memory of the history of observed Events, which timelines and tails show; 0 is none. Every replica observes all Events, and needs the right to list and watch them: deploy/observe.")
}

func (o *Options) addSharedFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ConfigFile, "config", o.ConfigFile,
		"File with the rules about what clients report, for the role intake, and with receivers to which the leader delivers the Events of the cluster, routes to them, and metrics, for the role observe. It is reloaded when it changes. Without it, there are none.")
	fs.IntVar(&o.MaxConnections, "max-connections", o.MaxConnections,
		"Maximum number of open connections from clients and other replicas. One address may use a third of it. Further connections are closed.")
	fs.IntVar(&o.MaxRequestsInFlight, "max-requests-inflight", o.MaxRequestsInFlight,
		"Maximum number of concurrent requests of authenticated clients, including those that wait. Further requests are answered 429.")
	fs.Var(bytesValue(&o.TrailBytes), "trail-bytes",
		"Maximum memory of the trail, which queries show; 0 is none. With the role intake, it has what the leader did with reports, and why; with the role observe, what became of observed Events at each receiver; with both, the noisiest objects.")
}

func (o *Options) addElectionFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect,
		"Run as one of several replicas: one leads, and the others forward requests to it. false runs a single replica.")
	l := &o.LeaderElection
	fs.DurationVar(&l.LeaseDuration, "leader-elect-lease-duration", l.LeaseDuration,
		"Time, in whole seconds, after which other replicas take over from a leader that does not renew its lease.")
	fs.DurationVar(&l.RenewDeadline, "leader-elect-renew-deadline", l.RenewDeadline,
		"Time after which a leader that cannot renew its lease stops leading. Less than --leader-elect-lease-duration.")
	fs.DurationVar(&l.RetryPeriod, "leader-elect-retry-period", l.RetryPeriod,
		"Time between two renewals of the lease, and between two reads by a standby without watch events.")
	fs.StringVar(&l.ResourceName, "leader-elect-resource-name", l.ResourceName,
		"Name of the Lease; by default eventd, and eventd-observe with --role=observe. deploy/ grants rights to these only.")
	fs.StringVar(&l.ResourceNamespace, "leader-elect-resource-namespace", l.ResourceNamespace,
		"Namespace of the Lease.")
	fs.Var(onLostValue(&l.OnLost), "on-lost-lease",
		`What a leader does after it has lost its lease: "standby", or "exit" with code 1 after an orderly shutdown. In both cases it writes what is pending.`)
	fs.StringVar(&l.IdentityFile, "leader-elect-identity-file", l.IdentityFile,
		"File that this process keeps locked, with its name in the Lease. A process that finds it unlocked takes over the lease of the former one at once, since that has ended. It has to survive a restart of the container, and belong to one replica only.")
	fs.StringVar(&l.PeerTokenFile, "peer-token-file", l.PeerTokenFile,
		"File with a token of eventd's ServiceAccount for --peer-audience, by which replicas authenticate each other. It is reloaded when it changes. Required with --leader-elect.")
	fs.StringVar(&l.PeerAudience, "peer-audience", l.PeerAudience,
		"Audience of the tokens by which replicas authenticate each other. It must not be an audience of the apiserver.")
	fs.StringVar(&l.AdvertiseAddress, "advertise-address", l.AdvertiseAddress,
		"Address at which other replicas reach this one, HOST or HOST:PORT. Defaults to --bind-address, or to the host's own address if that is unspecified, and the serving port.")
}

func (o *Options) addLifecycleFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", o.ShutdownDelay,
		"Time after SIGTERM in which eventd still serves while /readyz fails, so that load balancers stop using it. Part of --shutdown-grace-period.")
	fs.DurationVar(&o.ShutdownGracePeriod, "shutdown-grace-period", o.ShutdownGracePeriod,
		"Maximum time from SIGTERM to the end of the process. If accepted occurrences are lost then, their number is logged and the exit code is 1.")
	fs.StringVar(&o.EndpointKubeconfig, "endpoint-kubeconfig", o.EndpointKubeconfig,
		"File to which a kubeconfig for this eventd is written once it serves: URL and CA, no credentials. It is removed at the end.")
}

func (o *Options) addServingCAFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ServingCA, "serving-ca", o.ServingCA,
		`"managed" for serving certificates of a CA that eventd keeps itself, for clients that name the server: the leader keeps it in a Secret, and publishes it in a ConfigMap for clients. Both are in --leader-elect-resource-namespace, and their name is that of the Lease with "-serving-ca". Without it, the certificate is that of --tls-cert-file, or self-signed.`)
	fs.StringSliceVar(&o.ServingCADNSNames, "serving-ca-dns-names", o.ServingCADNSNames,
		"Further DNS names of the certificates of --serving-ca, such as that of a load balancer. They are always for the Service with the name of the Lease.")
}

func (o *Options) addServingFlags(fs *pflag.FlagSet) {
	o.SecureServing.AddFlags(fs)
	// In kube components 0 disables serving, which makes no sense here.
	fs.Lookup("secure-port").Usage = "Port for HTTPS with authentication and authorization. 0 selects a free port: see --endpoint-kubeconfig."
	fs.Lookup("cert-dir").Usage += " If neither is given, eventd creates a self-signed certificate in memory at every start."
}

func defaultsToKubeconfig(f *pflag.Flag) {
	f.Usage += " If empty, --kubeconfig is used."
}
