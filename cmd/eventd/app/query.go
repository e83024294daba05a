package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/server/flagz"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/server/statusz"
	"k8s.io/component-base/compatibility"

	"github.com/eventd/eventd/internal/eventfields"
	"github.com/eventd/eventd/pkg/query"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// newQueries creates the query API. Nothing is answered before the handler is served.
func (p *process) newQueries() (err error) {
	options := query.Options{
		History: p.history, Trail: p.trail,
		Identity: p.identity(), Role: p.options.Role, Gatherer: p.registry, Status: p.status, Stopping: p.shutdown.begun,
	}
	if !p.options.Takes() {
		options.Group = v1alpha1.ObserveGroupName
	}
	if p.elector != nil {
		options.Leading, options.Leader, options.Relay = p.elector.Leading, p.leader, p.relay.Query
	}
	p.queries, err = query.New(options)
	return err
}

// status returns what is not in the metrics.
func (p *process) status() v1alpha1.PipelineStatus {
	s := v1alpha1.PipelineStatus{Replica: p.replica(), Flags: p.flags}
	if p.elector != nil && p.elector.Leading() {
		s.Followers = p.followers.list(p.options.Takes())
	}
	if p.configuration != nil {
		s.Configuration, s.Rules = p.configuration.status(), p.configuration.ruleStatus()
	}
	if p.delivering != nil {
		s.Receivers = p.delivering.receivers()
	}
	return s
}

// The roles of a replica.
const roleLeader, roleStandby, roleAlone = "leader", "standby", "alone"

// identity is the name of this replica among others, or else that of its host.
func (p *process) identity() string {
	if p.elector != nil {
		return p.elector.Identity()
	}
	return hostName()
}

// state is what this replica reports to the leader.
func (p *process) state() []byte {
	s := replicaState{Replica: p.replica()}
	select {
	case <-p.shutdown.begun:
		s.Ending = true
	default:
	}
	data, _ := json.Marshal(s) // of strings, times and booleans
	return data
}

// maxReason limits why a replica is not ready: the words may be those of another server.
const maxReason = 1 << 10

func (p *process) replica() v1alpha1.Replica {
	r := v1alpha1.Replica{Identity: p.identity(), Role: roleAlone, Version: Version(), Started: new(metav1.NewTime(p.started))}
	if p.elector != nil {
		r.Role = roleStandby
		if p.elector.Leading() {
			r.Role = roleLeader
		}
	}
	err := p.checkReady()
	if r.Ready = new(err == nil); err != nil {
		r.Reason = eventfields.ValidUTF8(err.Error(), maxReason)
	}
	return r
}

// checkReady returns the first error of /readyz.
func (p *process) checkReady() error {
	for _, check := range p.readyz() {
		if check == healthz.PingHealthz {
			continue
		}
		if err := check.Check(nil); err != nil {
			return fmt.Errorf("%s: %w", check.Name(), err)
		}
	}
	return nil
}

// leader returns the leader that this replica knows, nil for none.
func (p *process) leader() *v1alpha1.Leader {
	known, tenure := p.elector.Leader(), p.elector.Tenure()
	if known.Identity == "" {
		return nil
	}
	l := &v1alpha1.Leader{Identity: known.Identity}
	if tenure.Holder == known.Identity {
		l.Since, l.Handovers = metav1.NewMicroTime(tenure.Since), int32(tenure.Transitions)
	}
	return l
}

// receivers returns what receivers do, without the internal one.
func (d *delivering) receivers() (out []v1alpha1.ReceiverStatus) {
	for _, s := range d.delivery.Snapshot() {
		r := v1alpha1.ReceiverStatus{Name: s.Name, State: string(s.State), LastError: s.LastError, Cursor: s.Cursor.ResourceVersion}
		if !s.Until.IsZero() {
			r.Until = new(metav1.NewTime(s.Until))
		}
		if !s.FailedAt.IsZero() {
			r.FailedAt = new(metav1.NewTime(s.FailedAt))
		}
		out = append(out, r)
	}
	return out
}

// changedFlags returns the flags that differ from their defaults.
func (o *Options) changedFlags() map[string]string {
	changed := make(map[string]string)
	defaults := valuesOf(NewOptions())
	for name, value := range valuesOf(o) {
		if value != defaults[name] {
			changed[name] = value
		}
	}
	return changed
}

func valuesOf(o *Options) map[string]string {
	values := make(map[string]string)
	sets := o.Flags()
	for _, fs := range sets.FlagSets {
		fs.VisitAll(func(f *pflag.Flag) { values[f.Name] = f.Value.String() })
	}
	return values
}

// handlers is where statusz and flagz install themselves.
type handlers map[string]http.Handler

// Handle adds a handler.
func (h handlers) Handle(path string, handler http.Handler) { h[path] = handler }

// zpages returns the pages of kube components about a process.
func (p *process) zpages() handlers {
	pages := make(handlers)
	flagz.Install(pages, "eventd", flagz.NamedFlagSetsReader{FlagSets: p.options.Flags()})
	paths := append(slices.Collect(maps.Keys(pages)), "/healthz", "/livez", "/readyz", "/metrics", statusz.DefaultStatuszPath)
	slices.Sort(paths)
	statusz.Install(pages, "eventd", statusz.NewRegistry(effectiveVersion(), statusz.WithListedPaths(paths)))
	return pages
}

// effectiveVersion is that of this binary, 0.0.0 if it has none. eventd does not emulate others.
func effectiveVersion() compatibility.EffectiveVersion {
	v, err := version.ParseSemantic(strings.TrimPrefix(Version(), "v"))
	if err != nil {
		v = version.MustParseSemantic("0.0.0")
	}
	return compatibility.NewEffectiveVersion(v, false, version.MajorMinor(0, 0), version.MajorMinor(0, 0))
}
