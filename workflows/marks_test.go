package workflows

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
)

// marks lets the stage write down every change of the search attributes: "reason=X stalled=false step=Y wave=2". The test
// environment does not show which ones are taken away; e2e does.
func (s *stage) marks() *[]string {
	var seen []string
	s.OnUpsertTypedSearchAttributes(mock.Anything).Run(func(args mock.Arguments) {
		changed, ok := args.Get(0).(temporal.SearchAttributes)
		require.True(s.t, ok)
		var words []string
		for key, value := range changed.GetUntypedValues() {
			name := strings.ToLower(strings.TrimPrefix(key.GetName(), "Convoy"))
			words = append(words, fmt.Sprintf("%s=%v", name, value))
		}
		slices.Sort(words)
		seen = append(seen, cmp.Or(strings.Join(words, " "), "taken away"))
	}).Return(nil).Maybe()
	return &seen
}

// An upsert is dear: the search attributes change only for a wait that lasts and for an end that is no success, and never
// where Temporal does not know them.
func TestSyncWorkflow_search_attributes_tell_of_trouble_only(t *testing.T) {
	searchable := func(p activities.Prepared) activities.Prepared {
		p.Searchable, p.StuckAfter = true, time.Hour
		return p
	}
	ready := func() activities.Prepared { return gated(v1alpha1.HealthReady, 0) }
	for name, c := range map[string]struct {
		plan      activities.Prepared
		again     time.Duration
		unhealthy int
		fail      string
		in        SyncInput
		want      []string
	}{
		"all is well":                        {plan: searchable(plan())},
		"a gate that opens at once":          {plan: searchable(ready()), again: time.Second, unhealthy: 3},
		"a wait that nobody can look for":    {plan: ready(), again: time.Hour, unhealthy: 9},
		"a failure that nobody can look for": {plan: plan(), fail: "dry run"},
		"a wait that lasts": {plan: searchable(ready()), again: time.Minute, unhealthy: 3, want: []string{
			"reason=WaitingForWave stalled=false step=apply wave=2", "taken away",
		}},
		"a wait that is stuck": {plan: searchable(ready()), again: time.Hour, unhealthy: 3, want: []string{
			"reason=WaitingForWave stalled=false step=apply wave=2", "reason=WaitingForWave stalled=true step=apply wave=2",
			"taken away",
		}},
		"a delay is never stuck": {plan: func() activities.Prepared {
			p := searchable(gated(v1alpha1.HealthDelay, 0))
			p.Waves[1].Delay = 9 * time.Hour
			return p
		}(), want: []string{"reason=WaitingForWave stalled=false step=apply wave=2", "taken away"}},
		"a failure that is tried again": {plan: searchable(plan()), fail: "wave 2", in: SyncInput{Loop: &activities.LoopRef{Failures: 3}},
			want: []string{"reason=DeployFailed stalled=false step=apply wave=2"}},
		"the fifth one in a row": {plan: searchable(plan()), fail: "wave 2", in: SyncInput{Loop: &activities.LoopRef{Failures: 4}},
			want: []string{"reason=DeployFailed stalled=true step=apply wave=2"}},
		"a failure before the plan": {plan: plan(), fail: "prepare", in: SyncInput{Loop: &activities.LoopRef{Searchable: true}},
			want: []string{"reason=DeployFailed stalled=false step=prepare"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, c.plan)
			seen := s.marks()
			if c.again > 0 {
				s.again = c.again
			}
			s.unhealthy = c.unhealthy
			if c.fail != "" {
				s.fail[c.fail] = failure(release.DeployFailed)
			}
			s.OnActivity(act.AnnounceDelay, mock.Anything, mock.Anything).Return(nil).Maybe()
			end := s.run(c.in)
			require.Equal(t, c.fail == "", end == "Succeeded", end)
			require.Equal(t, c.want, *seen)
		})
	}
}
