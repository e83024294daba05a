package deploy

import (
	"slices"
	"strings"
	"testing"

	"github.com/eventd/eventd/test/await"
)

// eventd uses each right of the component: without one, that is what it is refused. With all of them, it
// observes what is stored.
func TestEveryRightOfTheHistoryIsNeeded(t *testing.T) {
	rights := addedRights(t, "eventd-history")
	for i, removed := range append(slices.Clone(rights), right{}) {
		name := "all"
		if i < len(rights) {
			name = strings.ReplaceAll(removed.String(), " ", "_")
		}
		t.Run(name, func(t *testing.T) {
			account := newAccount("history")
			base := granted(t)
			makeAccount(t, account, without(append(base, rights...), len(base)+i, account))
			r := startWith(t, account, []string{"--history-bytes=8Mi"})
			defer r.Terminate(t)
			if i < len(rights) {
				if err := await.Success(t.Context(), await.Timeout, func() error { return refused(t, account, removed.ofAccount(account)) }); err != nil {
					t.Error(err)
				}
				return
			}
			if err := r.WaitServing(t.Context(), await.Timeout); err != nil {
				t.Fatal(err)
			}
			// Its own election is an Event, at least.
			await.Until(t, "the history has what is stored", func() bool {
				return r.WantMetrics(t, cluster).Sum("eventd_history_versions") > 0
			})
		})
	}
}
