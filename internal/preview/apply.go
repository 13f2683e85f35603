package preview

import (
	"context"
	"errors"
	"sync"

	"convoy.dev/convoy/internal/k8s"
	"convoy.dev/convoy/internal/release"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// inFlight is how many requests are under way at once.
const inFlight = 8

// dryRun asks the cluster about every object of the render, as the first step of a sync does (S5).
func (l *look) dryRun(ctx context.Context) error {
	items := make([]k8s.DryRunItem, len(l.plan.Items))
	for i, item := range l.plan.Items {
		items[i] = k8s.DryRunItem{Object: item.Object, Ref: item.Ref}
	}
	answers := make([]release.Applied, len(items))
	failures := map[int]*release.Failure{}
	var stray error
	err := l.session.DryRunAll(ctx, items, inFlight, func(i int, answer release.Applied, err error) {
		answers[i] = answer
		var failure *release.Failure
		if errors.As(err, &failure) {
			failures[i] = failure
		} else if err != nil {
			stray = err
		}
	})
	if err == nil {
		err = stray
	}
	if err != nil {
		return err
	}
	differences, err := l.differences(ctx, answers, failures)
	if err != nil {
		return err
	}
	judged, err := l.judge(ctx, failures)
	if err != nil {
		return err
	}
	l.report(answers, failures, differences, judged)
	return nil
}

// differences compares the objects that the dry run says would change. It is asked again because its word errs to the
// side of change right after an apply.
func (l *look) differences(ctx context.Context, answers []release.Applied, failures map[int]*release.Failure) (map[int]Difference, error) {
	var mu sync.Mutex
	var first error
	out := map[int]Difference{}
	var workers sync.WaitGroup
	slots := make(chan struct{}, inFlight)
	for i, answer := range answers {
		if failures[i] != nil || answer.Created || !answer.Changed {
			continue
		}
		item := l.plan.Items[i]
		slots <- struct{}{}
		workers.Go(func() {
			defer func() { <-slots }()
			difference, err := l.whole.Difference(ctx, item.Object, item.Ref)
			mu.Lock()
			defer mu.Unlock()
			if out[i] = difference; err != nil && first == nil {
				first = err
			}
		})
	}
	workers.Wait()
	return out, first
}

// judge sorts the failures, by the item that they are about (D7, D8).
func (l *look) judge(ctx context.Context, failures map[int]*release.Failure) (map[release.ObjectRef]Change, error) {
	changed, err := l.changedDefinitions(ctx, failures)
	if err != nil {
		return nil, err
	}
	verdict := release.Judge(l.plan, failures, func(gk schema.GroupKind) bool { return changed[gk] })
	out := map[release.ObjectRef]Change{}
	for _, r := range verdict.Rejections {
		out[r.Ref] = Change{Action: Reject, Ref: r.Ref, Detail: explain(r)}
	}
	for _, r := range verdict.Accidents {
		out[r.Ref] = Change{Action: Unjudged, Ref: r.Ref, Detail: explain(r)}
	}
	for _, u := range verdict.Unverified {
		out[u.Ref] = Change{Action: Unverified, Ref: u.Ref, Detail: u.Reason}
	}
	return out, nil
}

func explain(r release.Rejection) string {
	out := r.Message
	if r.Hint != "" {
		out += " — " + r.Hint
	}
	if place := r.Place.String(); place != "" {
		out += " (" + place + ")"
	}
	return out
}

// changedDefinitions tells which CustomResourceDefinitions of the plan differ from the live ones, where custom
// resources of theirs failed (D8).
func (l *look) changedDefinitions(ctx context.Context, failures map[int]*release.Failure) (map[schema.GroupKind]bool, error) {
	suspects := map[schema.GroupKind]bool{}
	for i := range failures {
		suspects[l.plan.Items[i].Ref.GroupKind()] = true
	}
	changed := map[schema.GroupKind]bool{}
	for i, item := range l.plan.Items {
		gk, defines := release.DefinedKind(item.Object)
		if !defines || !suspects[gk] || failures[i] != nil {
			continue
		}
		live, err := l.session.Read(ctx, item.Ref)
		if err != nil {
			return nil, err
		}
		if live == nil {
			changed[gk] = true
			continue
		}
		difference, err := l.whole.Difference(ctx, item.Object, item.Ref)
		if err != nil {
			return nil, err
		}
		changed[gk] = len(difference.Fields) > 0
	}
	return changed, nil
}

// report lists the changes in the order of application.
func (l *look) report(answers []release.Applied, failures map[int]*release.Failure, differences map[int]Difference, judged map[release.ObjectRef]Change) {
	for i, item := range l.plan.Items {
		answer, difference := answers[i], differences[i]
		switch {
		case failures[i] != nil:
			l.preview.Changes = append(l.preview.Changes, judged[item.Ref])
		case answer.Created:
			l.preview.Changes = append(l.preview.Changes, Change{Action: Create, Ref: item.Ref})
		case difference.Changed() || len(answer.TakenOver) > 0:
			l.preview.Changes = append(l.preview.Changes,
				Change{Action: Update, Ref: item.Ref, Fields: difference.Fields, TakenOver: answer.TakenOver})
		default:
			l.preview.Unchanged++
		}
	}
}
