package activities

import (
	"strings"
	"testing"

	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
)

// S5: every object, in one pass that ignores waves.
func TestDryRun_S5_asks_about_every_object(t *testing.T) {
	w := newWorld(t, cm("b", 5), cm("a", -1), cm("c", 5))
	var result DryRunResult
	w.succeeds(w.a.DryRun, w.sync(), &result)
	require.Equal(t, "dry-run a, dry-run b, dry-run c", strings.Join(w.calls, ", "))
	require.Equal(t, 3, result.Objects)
}

// S6 S8 D7: one verdict is enough, whatever accidents stand beside it; an unknown kind is none; all objects are asked.
func TestDryRun_S6_judges_all_answers_together(t *testing.T) {
	verdict := &release.Failure{Class: release.Verdict, Code: 422, Message: "spec is invalid"}
	accident := &release.Failure{Class: release.Accident, Code: 503, Message: "unavailable"}
	unknown := &release.Failure{Class: release.UnknownKind}
	for name, c := range map[string]struct {
		answers map[string]*release.Failure
		reason  release.Reason
		says    string
		writes  string
	}{
		"one verdict":             {map[string]*release.Failure{"b": verdict}, release.Unappliable, "rejects 1 object: ConfigMap team-a/b", ""},
		"a verdict and accidents": {map[string]*release.Failure{"a": accident, "b": verdict, "c": accident}, release.Unappliable, "rejects 1 object: ConfigMap team-a/b", ""},
		"an accident":             {map[string]*release.Failure{"c": accident}, release.DeployFailed, "could not judge 1 object: ConfigMap team-a/c", ""},
		"an unknown kind":         {map[string]*release.Failure{"a": unknown}, "", "", ", status"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, cm("a", 0), cm("b", 1), cm("c", 2))
			w.dryRun = c.answers
			if c.reason == "" {
				var result DryRunResult
				w.succeeds(w.a.DryRun, w.sync(), &result)
				require.Equal(t, 1, result.Unverified.Total)
			} else {
				require.Contains(t, w.fails(w.a.DryRun, w.sync(), string(c.reason)), c.says)
			}
			require.Equal(t, "dry-run a, dry-run b, dry-run c"+c.writes, strings.Join(w.calls, ", "))
		})
	}
}
