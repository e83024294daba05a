package testenv

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// auditPolicy logs the requests of the ServiceAccounts in kube-system.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: ["system:serviceaccounts:kube-system"]
  - level: None
`

func (c *ControlPlane) auditFile() string { return filepath.Join(c.dataDir, "audit.log") }

// auditArgs make the kube-apiserver keep an audit log. In the mode blocking, an answer
// is in the log before its client has it.
func (c *ControlPlane) auditArgs() ([]string, error) {
	policy := filepath.Join(c.dataDir, "audit-policy.yaml")
	args := []string{"--audit-policy-file=" + policy, "--audit-log-path=" + c.auditFile(), "--audit-log-mode=blocking"}
	return args, os.WriteFile(policy, []byte(auditPolicy), 0o600)
}

// AuditedRequest has the fields of a line of the audit log that tests use.
type AuditedRequest struct {
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

// Refused reports whether the ServiceAccount lacks a right.
func (r *AuditedRequest) Refused() bool { return r.ResponseStatus.Code == http.StatusForbidden }

// Audited returns the requests of a ServiceAccount in kube-system, in order, if Options
// have Audit. A watch is logged when it is answered, and when it ends.
func (c *ControlPlane) Audited(t testing.TB, account string) (found []AuditedRequest) {
	t.Helper()
	file, err := os.Open(c.auditFile())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line AuditedRequest
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			continue // the last one, as it is being written
		}
		if line.User.Username == User(metav1.NamespaceSystem, account) {
			found = append(found, line)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}
