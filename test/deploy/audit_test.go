package deploy

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
)

// auditPolicy has logged what the accounts in kube-system do.
const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    userGroups: ["system:serviceaccounts:kube-system"]
  - level: None
`

// audited is what is used of a line of the audit log.
type audited struct {
	Verb           string
	RequestURI     string
	User           struct{ Username string }
	ObjectRef      *struct{ Resource, Subresource, Namespace, Name, APIGroup string }
	ResponseStatus struct {
		Code    int
		Message string
	}
}

// requests returns what a ServiceAccount in kube-system has asked the apiserver
// for, in order. A watch is there once it is answered, not only when it ends.
func requests(t *testing.T, account string) (found []audited) {
	t.Helper()
	file, err := os.Open(auditLog)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line audited
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			continue // the last one, as it is being written
		}
		if line.User.Username == userOf(account) {
			found = append(found, line)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

func userOf(account string) string { return "system:serviceaccount:kube-system:" + account }

// needs tells which right a request is made with; ok is false for one that is
// not about an object, such as one for a discovery document.
func (a *audited) needs() (_ right, ok bool) {
	if a.ObjectRef == nil {
		return right{}, false
	}
	o := a.ObjectRef
	resource := o.Resource
	if o.Subresource != "" {
		resource += "/" + o.Subresource
	}
	return right{verb: a.verb(), group: o.APIGroup, resource: resource, namespace: o.Namespace, name: o.Name}, true
}

// verb is what the request needs the right to do. The update of an object that
// is not there is authorized as such, and then as what creates it.
func (a *audited) verb() string {
	creates := a.ResponseStatus.Code == http.StatusCreated || a.refused() && strings.Contains(a.ResponseStatus.Message, "cannot create")
	if a.Verb == "update" && creates {
		return "create"
	}
	return a.Verb
}

func (a *audited) refused() bool { return a.ResponseStatus.Code == http.StatusForbidden }
