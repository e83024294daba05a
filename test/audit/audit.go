// Package audit lets a control plane log the requests of eventd, and reads that log.
//
//	log, err := audit.In(dir)
//	cluster, err := testenv.Start(ctx, testenv.Options{APIServerArgs: log.APIServerArgs()})
//	...
//	requests, err := log.Of("eventd")
package audit

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
)

// policy logs the requests of the ServiceAccounts in kube-system.
const policy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: ["system:serviceaccounts:kube-system"]
  - level: None
`

// Log is the audit log of one control plane. It may be read while it is written.
type Log struct{ policy, file string }

// In prepares a log in a folder, which must exist as long as the control plane.
func In(dir string) (*Log, error) {
	l := &Log{filepath.Join(dir, "audit-policy.yaml"), filepath.Join(dir, "audit.log")}
	return l, os.WriteFile(l.policy, []byte(policy), 0o600)
}

// APIServerArgs make a kube-apiserver write the log. In the mode blocking, an answer is
// in the log before its client has it.
func (l *Log) APIServerArgs() []string {
	return []string{"--audit-policy-file=" + l.policy, "--audit-log-path=" + l.file, "--audit-log-mode=blocking"}
}

// Request has the fields of a line of the log that tests use.
type Request struct {
	Verb           string
	RequestURI     string
	User           struct{ Username string }
	ObjectRef      *struct{ Resource, Subresource, Namespace, Name, APIGroup string }
	ResponseStatus struct {
		Code    int
		Message string
	}
	Annotations map[string]string
}

// ReadByAll are the URIs that every ServiceAccount may read with the default roles: the
// public keys of ServiceAccount tokens.
var ReadByAll = []string{"/.well-known/openid-configuration", "/openid/v1/jwks"}

// User is the name that a ServiceAccount in kube-system has as a user.
func User(account string) string { return "system:serviceaccount:kube-system:" + account }

// Of returns the requests of a ServiceAccount in kube-system, in order. A watch is
// logged when it is answered, and when it ends.
func (l *Log) Of(account string) (found []Request, err error) {
	file, err := os.Open(l.file)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line Request
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			continue // the last one, as it is being written
		}
		if line.User.Username == User(account) {
			found = append(found, line)
		}
	}
	return found, lines.Err()
}
