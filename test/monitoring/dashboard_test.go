package monitoring

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// query is one of the dashboard's.
type query struct{ panel, expr string }

// dashboard is what there is to look at in Grafana's JSON.
type dashboard struct {
	Panels []struct {
		ID          int
		Type, Title string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct {
			Expr       string
			Datasource json.RawMessage
		}
	}
	Annotations struct {
		List []struct{ Name, Expr string }
	}
	Templating struct {
		List []struct {
			Name  string
			Query any
		}
	}
}

// readDashboard reads what the ConfigMap for Grafana's sidecar has.
func readDashboard(t *testing.T) dashboard {
	t.Helper()
	var configMap struct{ Data map[string]string }
	find(t, "ConfigMap", "eventd-dashboard", &configMap)
	var d dashboard
	if err := json.Unmarshal([]byte(configMap.Data["eventd.json"]), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// dashboardQueries are the queries of the panels.
func dashboardQueries(t *testing.T) (queries []query) {
	t.Helper()
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			queries = append(queries, query{p.Title, target.Expr})
		}
	}
	return queries
}

// forJob puts in what Grafana would for the variables.
func forJob(expr string) string {
	return strings.NewReplacer("$job", "eventd", "$__rate_interval", "5m").Replace(expr)
}

func TestDashboardIsOfOneJobAndAnyDataSource(t *testing.T) {
	d := readDashboard(t)
	ids, places := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if other, taken := ids[p.ID]; taken {
			t.Errorf("%s and %s have the same id", p.Title, other)
		}
		ids[p.ID] = p.Title
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, taken := places[[2]int{x, y}]; taken && other != p.Title {
					t.Errorf("%s lies on %s", p.Title, other)
				}
				places[[2]int{x, y}] = p.Title
			}
		}
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s is wider than the dashboard", p.Title)
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			if !strings.Contains(string(target.Datasource), "$datasource") {
				t.Errorf("%s has a data source of its own: %s", p.Title, target.Datasource)
			}
			for _, selector := range regexp.MustCompile(`[a-z_]+\{[^}]*\}`).FindAllString(target.Expr, -1) {
				if !strings.Contains(selector, `job="$job"`) {
					t.Errorf("%s is about other jobs, too: %s", p.Title, selector)
				}
			}
			if len(metricsIn(target.Expr)) != strings.Count(target.Expr, `job="$job"`) {
				t.Errorf("%s has metrics of any job: %s", p.Title, target.Expr)
			}
		}
	}
}

// The first row is the pipeline from left to right.
func TestDashboardBeginsWithThePipeline(t *testing.T) {
	want := []string{"Recorded", "Queued", "Merged", "Aggregated", "Deferred", "Pending", "Written", "Dropped"}
	x := -1
	var got []string
	for _, p := range readDashboard(t).Panels {
		if p.Type != "stat" {
			continue
		}
		if p.GridPos.X <= x {
			t.Errorf("%s is not to the right of the one before", p.Title)
		}
		x = p.GridPos.X
		got = append(got, p.Title)
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("it begins with %v, want %v", got, want)
	}
}

// An alert about a state fires when that has lasted: the dashboard shows since when. What alerts count is in
// the runbooks.
func TestDashboardShowsTheStatesThatAlertsAreAbout(t *testing.T) {
	var shown []string
	for _, q := range dashboardQueries(t) {
		shown = append(shown, metricsIn(q.expr)...)
	}
	_, rules := ruleFile(t)
	states := 0
	for _, r := range rules {
		for _, name := range metricsIn(r.Expr) {
			if strings.HasSuffix(name, "_total") {
				continue
			}
			states++
			if !slices.Contains(shown, name) {
				t.Errorf("%s is about %s, which no panel shows", r.Alert, name)
			}
		}
	}
	if states == 0 {
		t.Error("no alert is about a state")
	}
}

// A rotation is rare: who looks at it wants all that there is.
func TestDashboardShowsAllOfTheServingCA(t *testing.T) {
	var queries []string
	for _, q := range dashboardQueries(t) {
		queries = append(queries, metricsIn(q.expr)...)
	}
	found := 0
	for name := range pageMetrics(t) {
		if !strings.HasPrefix(name, "eventd_serving_ca_") {
			continue
		}
		found++
		if !slices.Contains(queries, name) {
			t.Errorf("no panel shows %s", name)
		}
	}
	if found == 0 {
		t.Error("the page of metrics has none of the serving CA")
	}
}
