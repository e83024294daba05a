package deploy

import (
	"net/http"
	"strings"
	"testing"

	"github.com/eventd/eventd/test/testenv"
)

// audited is a request that is in the audit log.
type audited struct{ testenv.AuditedRequest }

// requests returns the requests of a ServiceAccount in kube-system, in order.
func requests(t *testing.T, account string) (found []audited) {
	t.Helper()
	for _, request := range cluster.Audited(t, account) {
		found = append(found, audited{request})
	}
	return found
}

// needs returns the right that a request needs; ok is false for one without an object,
// such as one for a discovery document.
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

// verb is the verb of that right. The update of an object that does not exist is
// authorized as an update, and then as a create.
func (a *audited) verb() string {
	creates := a.ResponseStatus.Code == http.StatusCreated || a.refused() && strings.Contains(a.ResponseStatus.Message, "cannot create")
	if a.Verb == "update" && creates {
		return "create"
	}
	return a.Verb
}

func (a *audited) refused() bool { return a.ResponseStatus.Code == http.StatusForbidden }
