package main

import (
	"bytes"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"

	"github.com/stretchr/testify/require"
)

// SPEC 4: a Release is pinned to the render that is applied, or to one of its history, by the beginning of its digest.
func TestPinAndUnpin(t *testing.T) {
	s := newStack(t)
	arg := s.release("shop", configMap("a", ""), pruning)
	got := s.run("pin", arg)
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.stderr, "no render that was applied: name a digest")
	rel := s.get("shop")
	now := before(0)
	rel.Status.LastSuccessful = &v1alpha1.Success{Digest: digestA, FinishedAt: now}
	for _, digest := range []string{digestA, digestB, digestB[:20] + digestA[20:]} {
		rel.Status.History = append(rel.Status.History, v1alpha1.HistoryEntry{Digest: digest, Result: v1alpha1.ResultSucceeded, FirstAppliedAt: now, LastAppliedAt: now})
	}
	require.NoError(t, s.client.Status().Update(t.Context(), rel))
	for _, step := range []struct {
		args     []string
		code     int
		says     string
		pinnedTo string
	}{
		{[]string{"pin", arg}, exitDone, "is held at render " + digestA, digestA},
		{[]string{"pin", arg, digestB}, exitDone, "is held at render " + digestB, digestB},
		{[]string{"pin", arg, "aaaa"}, exitDone, "is held at render " + digestA, digestA},
		{[]string{"pin", arg, "aaa"}, exitUsage, "convoy history", digestA},
		{[]string{"pin", arg, "sha256:bbbb"}, exitUsage, "the beginning of 2 digests", digestA},
		{[]string{"pin", arg, "cccc"}, exitUsage, "neither a digest", digestA},
		{[]string{"unpin", arg}, exitDone, "follows its source again", ""},
		{[]string{"unpin", arg}, exitDone, "is not pinned", ""},
	} {
		got := s.run(step.args...)
		require.Equal(t, step.code, got.code, got.stderr)
		require.Contains(t, got.stdout+got.stderr, step.says)
		pin := s.get("shop").Spec.Pin
		if step.pinnedTo == "" {
			require.Nil(t, pin)
		} else {
			require.Equal(t, step.pinnedTo, pin.Digest)
		}
	}
}

func TestHistory(t *testing.T) {
	rel := waitingRelease()
	rel.Spec.Pin = &v1alpha1.Pin{Digest: digestA}
	var out bytes.Buffer
	printHistory(&out, rel, noon)
	require.Regexp(t, "^RENDER +REVISION +FIRST APPLIED +LAST APPLIED +ASKED BY +RUN\n"+
		digestA+" +v1 +2d2h ago \\(2026-11-28T10:00:00Z\\) +26h ago \\(2026-11-29T10:00:00Z\\) +- +run-1 +applied, pinned\n$", out.String())
}
