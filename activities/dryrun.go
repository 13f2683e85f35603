package activities

import (
	"context"
	"errors"
	"sync/atomic"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DryRun sends every object of the render to the target cluster as a server-side apply dry run, in one pass that
// ignores waves (S5), and judges all answers together (D7, D8, D9). The cluster keeps nothing of it.
//
// Idempotent: it changes nothing but status.unverified (D8).
// Fails with: Unappliable (S6), naming the first 20 rejected objects; DeployFailed when the cluster could not judge.
// Heartbeat: how many objects were answered.
func (a *Activities) DryRun(ctx context.Context, ref SyncRef) (DryRunResult, error) {
	return perform(ctx, a, "dry run", release.DeployFailed, func(ctx context.Context, l *lease) (DryRunResult, error) {
		st, err := a.open(ctx, ref)
		if err != nil {
			return DryRunResult{}, err
		}
		answers, failures, err := st.dryRun(ctx, func(done int) {
			l.record(func(p *Progress) { p.Done, p.Total = done, len(st.plan.Items) })
		})
		if err != nil {
			return DryRunResult{}, err
		}
		result, err := st.judge(ctx, answers, failures)
		if err != nil {
			return DryRunResult{}, err
		}
		// A sync may wait at a gate for days: what it could not verify is shown now, and not only at its end.
		_, err = a.writeStatus(ctx, st.rel, ref, func(status *v1alpha1.ReleaseStatus) {
			status.Unverified, status.UnverifiedTotal = result.Unverified.Objects, int32(result.Unverified.Total)
		})
		return result, err
	})
}

// dryRun asks about every item. Failures are keyed by the index of the item.
func (s *step) dryRun(ctx context.Context, progress func(done int)) ([]release.Applied, map[int]*release.Failure, error) {
	answers := make([]release.Applied, len(s.plan.Items))
	errs := make([]error, len(s.plan.Items))
	var done atomic.Int64
	err := s.target.DryRun(ctx, s.plan.Items, func(i int, answer release.Applied, err error) {
		answers[i], errs[i] = answer, err
		progress(int(done.Add(1)))
	})
	if err != nil {
		return nil, nil, err
	}
	failures := map[int]*release.Failure{}
	for i, err := range errs {
		var failure *release.Failure
		switch {
		case err == nil:
		case errors.As(err, &failure):
			failures[i] = failure
		default:
			return nil, nil, err
		}
	}
	return answers, failures, nil
}

// judge decides what the answers mean together.
func (s *step) judge(ctx context.Context, answers []release.Applied, failures map[int]*release.Failure) (DryRunResult, error) {
	changed, err := s.changedDefinitions(ctx, answers, failures)
	if err != nil {
		return DryRunResult{}, err
	}
	verdict := release.Judge(s.plan, failures, func(gk schema.GroupKind) bool { return changed[gk] })
	if len(verdict.Rejections) > 0 {
		return DryRunResult{}, release.Problemf(release.Unappliable, "%s", shorten(release.RejectionMessage(verdict, listLimit)))
	}
	if len(verdict.Accidents) > 0 {
		return DryRunResult{}, release.Problemf(release.DeployFailed, "%s", shorten(release.AccidentMessage(verdict, listLimit)))
	}
	result := DryRunResult{Objects: len(s.plan.Items)}
	for i := range answers {
		if answers[i].Changed || failures[i] != nil {
			result.Changes++
		}
	}
	for _, unverified := range verdict.Unverified {
		result.Unverified.add(unverified.String())
	}
	return result, nil
}

// changedDefinitions tells which CustomResourceDefinitions of the plan differ from the live ones. It asks the cluster
// only about those whose custom resources failed: the generation of the dry run's answer against the live one.
func (s *step) changedDefinitions(ctx context.Context, answers []release.Applied, failures map[int]*release.Failure) (map[schema.GroupKind]bool, error) {
	suspects := map[schema.GroupKind]bool{}
	for i := range failures {
		suspects[s.plan.Items[i].Ref.GroupKind()] = true
	}
	changed := map[schema.GroupKind]bool{}
	for i := range s.plan.Items {
		gk, defines := release.DefinedKind(s.plan.Items[i].Object)
		if !defines || !suspects[gk] || failures[i] != nil {
			continue
		}
		live, err := s.target.Read(ctx, s.plan.Items[i].Ref)
		if err != nil {
			return nil, err
		}
		changed[gk] = live == nil || live.Generation != answers[i].Generation
	}
	return changed, nil
}
