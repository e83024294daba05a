package recorder

import (
	"encoding/hex"
	"hash/fnv"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/internal/instrument"
	"github.com/eventd/eventd/internal/truncate"
)

// maxClassicMessage is the limit of a classic message, in bytes. The apiserver has none;
// this one bounds the memory of a full queue.
const maxClassicMessage = 16 << 10

// unknown replaces an empty field that the apiserver requires.
const unknown = "Unknown"

// repair is the repair of a field that the apiserver would refuse. Its values are metric
// labels; docs/library.md describes them.
type repair string

const (
	repairUTF8                repair = "invalid_utf8"
	repairMessageCut          repair = "message_cut"
	repairReasonCut           repair = "reason_cut"
	repairReasonEmpty         repair = "reason_empty"
	repairActionCut           repair = "action_cut"
	repairActionEmpty         repair = "action_empty"
	repairReportingController repair = "reporting_controller"
	repairReportingInstance   repair = "reporting_instance_cut"
	repairRelatedLeftOut      repair = "related_left_out"
	repairClusterScoped       repair = "cluster_scoped_namespace"
	repairUnformattable       repair = "unformattable_arguments"
)

var allRepairs = []repair{
	repairUTF8, repairMessageCut, repairReasonCut, repairReasonEmpty, repairActionCut, repairActionEmpty,
	repairReportingController, repairReportingInstance, repairRelatedLeftOut, repairClusterScoped, repairUnformattable,
}

// Repairs counts the repairs of any number of recorders. A nil *Repairs counts nothing.
type Repairs struct {
	counters map[repair]prometheus.Counter // fixed after NewRepairs
}

// NewRepairs returns counters that are registered with r, unless r is nil. An error is
// one of registering.
func NewRepairs(r prometheus.Registerer) (*Repairs, error) {
	set := instrument.New(r)
	counts := set.CounterVec("eventd_recorder_repairs_total",
		"Fields of Events repaired because the apiserver would refuse them, by repair.", "repair")
	repairs := &Repairs{counters: make(map[repair]prometheus.Counter, len(allRepairs))}
	for _, done := range allRepairs {
		repairs.counters[done] = counts.WithLabelValues(string(done))
	}
	return repairs, set.Err()
}

func (r *Repairs) count(done repair) {
	if r != nil {
		r.counters[done].Inc()
	}
}

// text makes s valid UTF-8, which JSON and protobuf require.
func (r *Repairs) text(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	r.count(repairUTF8)
	return strings.ToValidUTF8(s, string(utf8.RuneError))
}

// cut shortens s, which is valid UTF-8, to at most limit bytes, at a character boundary.
func (r *Repairs) cut(s string, limit int, done repair) string {
	if len(s) <= limit {
		return s
	}
	r.count(done)
	return strings.Clone(truncate.String(s, limit)) // frees the rest
}

// qualifiedName makes a valid reporting controller of a name (validation.IsQualifiedName):
// an optional DNS subdomain and a slash, then at most 63 letters, digits, '-', '_' and '.',
// with a letter or digit at both ends. It returns a valid name unchanged.
func qualifiedName(name string) string {
	if len(validation.IsQualifiedName(name)) == 0 {
		return name
	}
	prefix, rest, found := strings.Cut(name, "/")
	if !found {
		prefix, rest = "", name
	}
	const longest = 63
	rest = strings.Map(func(c rune) rune {
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("-_.", c) {
			return c
		}
		return '-'
	}, rest)
	rest = strings.TrimLeft(rest, "-_.")
	rest = strings.TrimRight(rest[:min(len(rest), longest)], "-_.")
	if rest == "" {
		rest = "unknown"
	}
	if prefix == "" || len(validation.IsDNS1123Subdomain(prefix)) > 0 {
		return rest
	}
	return prefix + "/" + rest
}

// shortInstance cuts the name of a reporting instance. The end becomes a hash of the
// whole name, so that different names remain different.
func shortInstance(name string) string {
	valid := strings.ToValidUTF8(name, "-")
	if len(valid) <= identity.MaxReportingInstance {
		return valid
	}
	hash := fnv.New64a()
	hash.Write([]byte(name))
	end := "-" + hex.EncodeToString(hash.Sum(nil))
	return truncate.String(valid, identity.MaxReportingInstance-len(end)) + end
}
