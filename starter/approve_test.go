package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// askingRelease is a Release whose wave 1 waits for an approval of render A.
func askingRelease() *v1alpha1.Release {
	rel := &v1alpha1.Release{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "shop"}}
	until := metav1.NewTime(time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC))
	rel.Status.LastAttempted = &v1alpha1.Attempt{Digest: digestA, Revision: "r7", Result: v1alpha1.ResultRunning}
	rel.Status.Waves = []v1alpha1.WaveStatus{
		{Wave: 0, Phase: v1alpha1.WaveApplied, Approval: &v1alpha1.ApprovalStatus{Decision: v1alpha1.Approved, By: "bob", Digest: digestA}},
		{Wave: 1, Phase: v1alpha1.WaveWaiting, Approval: &v1alpha1.ApprovalStatus{Digest: digestA, ExpiresAt: &until}},
	}
	return rel
}

// Without --digest a person sees what waits, and its digest is taken only with their word.
func TestApproveShowsWhatWaits(t *testing.T) {
	var out bytes.Buffer
	p := &program{stdout: &out, stderr: &out}
	digest, err := p.confirm(askingRelease(), approveFlags{yes: true}, strings.NewReader(""))
	require.NoError(t, err)
	require.Equal(t, digestA, digest)
	require.Contains(t, out.String(), "Release team-a/shop -> ")
	require.Contains(t, out.String(), "wave 1 waits for an approval of\n  render aaaaaaaaaaaa, revision r7\n  "+digestA+"\n  it expires 2026-01-02T12:00:00Z\n")

	_, err = p.confirm(askingRelease(), approveFlags{}, strings.NewReader("y\n"))
	require.Equal(t, failf(exitUsage, "nobody can be asked here: name the render with --digest %s, or take the one above with --yes", digestA), err)
	for typed, want := range map[string]bool{"y\n": true, "Yes\n": true, "\n": false, "": false, "n\n": false, "sure\n": false} {
		require.Equal(t, want, p.agrees(strings.NewReader(typed), "approve"), "%q", typed)
	}
}

// Where nothing waits, the error says what the Release is at instead.
func TestApproveSaysThatNothingWaits(t *testing.T) {
	p := &program{stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
	for says, c := range map[string]struct {
		change func(*v1alpha1.Release)
		flags  approveFlags
	}{
		"no sync has begun": {func(rel *v1alpha1.Release) { rel.Status = v1alpha1.ReleaseStatus{} }, approveFlags{}},
		"its last sync ended as Superseded. `convoy sync team-a/shop` asks for another":           {func(rel *v1alpha1.Release) { rel.Status.LastAttempted.Result = v1alpha1.ResultSuperseded }, approveFlags{}},
		"To approve a gate before its turn, name it and the render: --wave N --digest " + digestA: {func(rel *v1alpha1.Release) { rel.Status.Waves[1].Approval = nil }, approveFlags{action: "approve"}},
		"no such gate":       {nil, approveFlags{final: true}},
		"no such gate of Re": {nil, approveFlags{wave: 2, waveGiven: true}},
	} {
		rel := askingRelease()
		if c.change != nil {
			c.change(rel)
		}
		_, err := p.confirm(rel, c.flags, strings.NewReader(""))
		require.ErrorContains(t, err, says)
	}
	final := askingRelease()
	final.Status.Waves[1].Approval, final.Status.Waves[1].FinalApproval = nil, final.Status.Waves[1].Approval
	gate, approval := waitingGate(final, approveFlags{})
	require.Equal(t, "the final gate", gate)
	require.NotNil(t, approval)
}

// Without a sync nobody hears the word; status says what became of the last one.
func TestApproveWithoutASync(t *testing.T) {
	s := newStack(t)
	arg := s.release("shop", configMap("a", ""), pruning)
	got := s.run("approve", arg)
	require.Equal(t, exitRefused, got.code, got.stderr)
	require.Contains(t, got.stderr, "no sync has begun")
	got = s.run("reject", arg, "--wave", "1", "--digest", digestA, "--by", "alice")
	require.Equal(t, exitRefused, got.code, got.stderr)
	require.Contains(t, got.stderr, "no sync of Release "+arg+" runs, so nothing waits for an approval. `convoy sync "+arg+"` asks for another")
}

// The status page says who decided.
func TestStatusSaysWhoDecided(t *testing.T) {
	rel := askingRelease()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := metav1.NewTime(now.Add(-3 * time.Minute))
	rel.Status.Waves[0].Approval.At, rel.Status.Waves[0].Approval.Reason = &at, "the figures look right"
	var out bytes.Buffer
	printStatus(&out, rel, loopView{}, now)
	require.Contains(t, out.String(), "  wave 0: approved by bob 3m ago (2026-01-01T11:57:00Z): the figures look right\n")
	require.NotContains(t, out.String(), "wave 1: approved")
}
