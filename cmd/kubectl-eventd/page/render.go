package page

import (
	"bytes"
	"context"
	"embed"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/eventd/eventd/cmd/kubectl-eventd/describe"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

//go:embed templates
var sources embed.FS

// queryTimeout is how long a view waits for eventd. The script gives up before, after 4 s, but not before
// statusTimeout.
const queryTimeout, statusTimeout = 10 * time.Second, 3 * time.Second

// templates returns the views, each with the frame around it.
var templates = sync.OnceValue(func() map[string]*template.Template {
	shared := template.Must(template.New("").Funcs(template.FuncMap{
		"at": at, "clock": clock, "lasting": lasting, "count": func(n int64) string { return count(float64(n)) },
		"link": link, "objectLink": objectLink,
		"object": v1alpha1.ObjectReference.String, "describe": describe.Step, "message": describe.Message, "list": func(v ...any) []any { return v },
		"deref": func(v *bool) bool { return *v },
	}).ParseFS(sources, "templates/frame.html", "templates/parts.html"))
	all := map[string]*template.Template{}
	for _, view := range []string{"status", "top", "drops", "object", "tail", "unknown"} {
		all[view] = template.Must(template.Must(shared.Clone()).ParseFS(sources, "templates/"+view+".html"))
	}
	return all
})

// frame is what all views have.
type frame struct {
	View, Title string
	Now         time.Time
	// Search and Namespaces are what is entered in the form.
	Search, Namespaces string
	// Problem is set instead of Content, unless Kept: that is an older one, which says so.
	Problem *problem
	Kept    bool
	Content any
}

// newFrame reads what all views have from the URL.
func newFrame(view, title string, r *http.Request) *frame {
	return &frame{View: view, Title: title, Now: time.Now(), Namespaces: strings.Join(namespaces(r), " ")}
}

// namespaces are separated by commas or spaces.
func namespaces(r *http.Request) (out []string) {
	for _, entered := range r.URL.Query()[v1alpha1.ParamNamespace] {
		out = append(out, strings.FieldsFunc(entered, func(c rune) bool { return c == ',' || c == ' ' })...)
	}
	return out
}

// query is that of the backend for the namespaces that are entered.
func query(r *http.Request, pairs ...string) url.Values {
	q := url.Values{}
	if named := namespaces(r); len(named) > 0 {
		q[v1alpha1.ParamNamespace] = named
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// get asks the backend, and makes what it says harmless.
func (s *server) get(r *http.Request, resource string, q url.Values, into any) *problem {
	ctx, cancel := context.WithTimeout(r.Context(), queryTimeout)
	defer cancel()
	if err := s.backend.Get(ctx, resource, q, into); err != nil {
		p := explain(err, resource, q)
		if s.advice != nil {
			if advice := s.advice(err); advice != "" {
				p.Hint = advice
			}
		}
		return p
	}
	clean(into)
	return nil
}

// render writes a view. The code of an answer without content is that of its problem.
func (f *frame) render(w http.ResponseWriter, r *http.Request) {
	var page bytes.Buffer
	if err := templates()[f.View].ExecuteTemplate(&page, "frame", f); err != nil {
		klog.FromContext(r.Context()).Error(err, "Could not render the page", "view", f.View)
		refuse(w, http.StatusInternalServerError, "The page could not be rendered.")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if f.Problem != nil {
		w.WriteHeader(f.Problem.Code)
	}
	if r.Method != http.MethodHead {
		page.WriteTo(w)
	}
}

// unknown answers all other paths.
func (s *server) unknown(w http.ResponseWriter, r *http.Request) {
	f := newFrame("unknown", "Not found", r)
	f.Problem = &problem{Code: http.StatusNotFound, Title: "There is no such page.", Hint: "The links above lead to all that there is."}
	f.render(w, r)
}

// link returns a path with parameters, those without a value left out.
func link(path string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

func objectLink(o v1alpha1.ObjectReference) string {
	return link("/object", v1alpha1.ParamGroup, o.Group, v1alpha1.ParamKind, o.Kind, v1alpha1.ParamNamespace, o.Namespace, v1alpha1.ParamName, o.Name)
}
