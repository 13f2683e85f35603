package k8s

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"convoy.dev/convoy/internal/release"
)

// DryRun asks what Apply of obj as ref would answer, and keeps nothing (S5). Accidents are retried within the
// session's budget. Applied.TakenOver names the managers that the apply would take over (D15); a refusal that such
// left-over fields alone explain says so. Applied.Changed tells whether the apply would change something; see Apply.
//
// Fails with a *release.Failure of any class, or with the guard's or the context's error.
func (s *Session) DryRun(ctx context.Context, obj *release.Object, ref release.ObjectRef) (release.Applied, error) {
	var applied release.Applied
	var causes []metav1.StatusCause
	err := s.retry(ctx, nil, func(ctx context.Context) error {
		var meta *metav1.ObjectMeta
		var err error
		meta, applied, err = s.patch(ctx, obj, ref, true)
		if err == nil {
			applied.TakenOver = clientSideManagers(meta)
		}
		causes = causesOf(err)
		return err
	})
	if err != nil {
		return release.Applied{}, s.hintLeftOver(ctx, obj, ref, causes, err)
	}
	return applied, nil
}

// DryRunItem is one object of DryRunAll and the identity that it goes to.
type DryRunItem struct {
	Object *release.Object
	Ref    release.ObjectRef
}

// DryRunAll sends the dry runs of all items, up to parallel at a time (8 is a good number). done hears of every
// answer, one call at a time, in no particular order; err is nil or a *release.Failure. Once the cluster has given no
// answer at all for the whole budget, the items left over are not sent: done hears an accident for each.
//
// Fails only when the guard says stop or the context ends; then not every item was answered.
func (s *Session) DryRunAll(ctx context.Context, items []DryRunItem, parallel int, done func(i int, applied release.Applied, err error)) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	pass := &dryRunPass{session: s, items: items, done: done, stop: stop}
	var workers sync.WaitGroup
	for range min(max(parallel, 1), len(items)) {
		workers.Go(func() {
			for ctx.Err() == nil && pass.one(ctx) {
			}
		})
	}
	workers.Wait()
	if pass.fatal == nil && ctx.Err() != nil {
		return fmt.Errorf("dry run: %w", context.Cause(ctx))
	}
	return pass.fatal
}

// dryRunPass is one DryRunAll.
type dryRunPass struct {
	session *Session
	items   []DryRunItem
	done    func(i int, applied release.Applied, err error)
	stop    context.CancelCauseFunc

	mu     sync.Mutex
	next   int
	silent *release.Failure // the cluster gave no answer for the whole budget: nothing more is sent
	fatal  error
}

// one handles the next item; false when there is none.
func (p *dryRunPass) one(ctx context.Context) bool {
	p.mu.Lock()
	i, silent := p.next, p.silent
	p.next++
	p.mu.Unlock()
	if i >= len(p.items) {
		return false
	}
	var applied release.Applied
	var err error
	if silent != nil {
		err = unsent(silent)
	} else {
		applied, err = p.session.DryRun(ctx, p.items[i].Object, p.items[i].Ref)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	failure := asFailure(err)
	if err != nil && failure == nil {
		if p.fatal == nil {
			p.fatal = err
		}
		p.stop(err)
		return false
	}
	if failure != nil && failure.Class == release.Accident && failure.Code == 0 && p.silent == nil {
		p.silent = failure
	}
	p.done(i, applied, err)
	return true
}

func unsent(silent *release.Failure) *release.Failure {
	return &release.Failure{Class: release.Accident, Message: cut("not checked, because "+silent.Message, messageLimit)}
}
