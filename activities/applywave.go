package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/activity"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
)

// ApplyWave applies the objects of one wave with Server-Side Apply: strictly in the order of the render, one request
// after the other (S13, S15, S16). Before its first request the identities that are new go to the inventory's pending
// list (D13); at its end, also when it fails or is cancelled, the inventory is the union of what it held and what was
// applied (S20).
//
// Idempotent: a later attempt begins the wave again at its first object; an apply of the same object changes nothing.
// Fails with: DeployFailed (S18, D14, D34), RenderFailed (another Release has taken an object of the wave meanwhile, D27),
// Superseded (the Release changed, and the render is not to be had any more).
// Heartbeat: the wave, how many of its objects are applied, and the object at hand.
func (a *Activities) ApplyWave(ctx context.Context, in WaveInput) (ApplyWaveResult, error) {
	w := &waveApply{Activities: a, in: in, attempt: activity.GetInfo(ctx).Attempt, began: a.now(), facts: map[release.ObjectRef]release.Fact{}}
	return perform(ctx, a, "apply", release.DeployFailed, w.run)
}

// waveApply is one attempt at one wave.
type waveApply struct {
	*Activities
	in      WaveInput
	attempt int32
	began   time.Time

	*step
	items []release.Item
	inv   *v1alpha1.ReleaseInventory
	// recorded is what the inventory held, others what is pending there beside this wave, applied what this attempt
	// applied, and uncertain what it may have applied.
	recorded, others, applied, uncertain []release.ObjectRef
	facts                                map[release.ObjectRef]release.Fact // of what this attempt applied (D30)
	changed                              int
	definitions                          []string // CustomResourceDefinitions that this attempt created or changed
	takenOver                            []string
	shown                                time.Time // when status last showed the progress
}

func (w *waveApply) run(ctx context.Context, l *lease) (ApplyWaveResult, error) {
	var err error
	if w.step, err = w.open(ctx, w.in.Sync); err != nil {
		return ApplyWaveResult{}, err
	}
	for _, wave := range w.plan.Waves {
		if wave.Number == w.in.Wave {
			w.items = w.plan.InWave(wave)
		}
	}
	l.record(func(p *Progress) { p.Wave, p.Total = &w.in.Wave, len(w.items) })
	if err := w.claim(ctx); err != nil {
		return ApplyWaveResult{}, err
	}
	if waits(w.rel) {
		if err := w.show(ctx, v1alpha1.WaveApplying); err != nil {
			return ApplyWaveResult{}, err
		}
	}
	applyErr := w.apply(ctx, l)
	if err := w.close(ctx, l, applyErr); err != nil {
		return ApplyWaveResult{}, err
	}
	return ApplyWaveResult{Applied: len(w.applied), Changed: w.changed, Unsure: w.attempt > 1}, nil
}

// waits reports whether the condition Applied still shows the gate that this wave has just passed.
func waits(rel *v1alpha1.Release) bool {
	applied := meta.FindStatusCondition(rel.Status.Conditions, v1alpha1.ConditionApplied)
	return applied != nil && applied.Reason == string(release.WaitingForWave)
}

// claim writes what is about to be applied and not recorded yet to the pending list (D13), and takes objects that move
// here out of the inventory that lists them (D27). A later attempt touches the inventory even when nothing is new, so
// that a late writer of the attempt before meets a conflict.
func (w *waveApply) claim(ctx context.Context) error {
	var err error
	if w.inv, err = w.control.Inventory(ctx, w.rel); err != nil {
		return err
	}
	w.recorded = release.RefsOf(w.inv.Spec.Objects)
	refs := refsOf(w.items)
	w.others = release.Minus(release.RefsOf(w.inv.Spec.Pending), refs)
	fresh := release.Minus(refs, w.recorded)
	if len(fresh) == 0 && w.attempt == 1 {
		return nil
	}
	uid, err := w.target.Identity(ctx)
	if err != nil {
		return err
	}
	describe(w.inv, uid, w.target.Address())
	w.inv.Spec.Pending = release.Records(release.Union(release.RefsOf(w.inv.Spec.Pending), fresh))
	touch(w.inv, w.in.Sync)
	if err := w.saveInventory(ctx, w.inv); err != nil {
		return err
	}
	return w.settleClaims(ctx, uid, fresh)
}

// settleClaims looks once more who else has the new objects: since the sync began another Release may have taken them,
// and the wave may have waited for days. What may move here leaves the inventory that lists it; where anything may not,
// the wave does not begin (D27). The own claim is written before the look, so of two Releases at the same time at least
// one sees the other.
func (w *waveApply) settleClaims(ctx context.Context, uid string, fresh []release.ObjectRef) error {
	if len(fresh) == 0 {
		return nil
	}
	others, err := w.control.Claims(ctx, key(w.rel), uid)
	if err != nil || len(others) == 0 {
		return err
	}
	clashes, err := w.clashes(ctx, w.rel, w.items, w.recorded, others)
	if err != nil {
		return err
	}
	if len(clashes) > 0 {
		if err := w.withdraw(ctx, clashes); err != nil {
			return err
		}
		return refuse(w.rel, clashes, fmt.Sprintf("Wave %d was not begun", w.in.Wave))
	}
	return w.disclaim(ctx, others, fresh)
}

// withdraw takes objects of other Releases off the pending list, so that those Releases' prunes are theirs alone.
func (w *waveApply) withdraw(ctx context.Context, clashes []release.Clash) error {
	refs := make([]release.ObjectRef, len(clashes))
	for i, c := range clashes {
		refs[i] = c.Object
	}
	w.inv.Spec.Pending = release.Records(release.Minus(release.RefsOf(w.inv.Spec.Pending), refs))
	return w.saveInventory(ctx, w.inv)
}

// disclaim takes the records of adopted objects out of the inventories that list them.
func (w *waveApply) disclaim(ctx context.Context, others claims, fresh []release.ObjectRef) error {
	moved := map[types.NamespacedName]map[release.ObjectRef]bool{}
	for _, ref := range fresh {
		if owner, claimed := others[ref]; claimed {
			if moved[owner] == nil {
				moved[owner] = map[release.ObjectRef]bool{}
			}
			moved[owner][ref] = true
		}
	}
	for owner, refs := range moved {
		if err := w.control.Disclaim(ctx, owner, refs); err != nil {
			return err
		}
	}
	return nil
}

// unionEvery is after how many objects of a large wave the union is written in between.
const unionEvery = 1000

// apply sends the objects in order and stops at the first failure (S18).
func (w *waveApply) apply(ctx context.Context, l *lease) error {
	for i := range w.items {
		item := w.items[i]
		l.record(func(p *Progress) { p.Done, p.Object = i, item.Ref.String() })
		answer, err := w.target.Apply(ctx, item.Object, item.Ref)
		if err != nil {
			var failure *release.Failure
			if !errors.As(err, &failure) || failure.Uncertain {
				w.uncertain = append(w.uncertain, item.Ref)
			}
			return w.explain(err, item, i)
		}
		w.note(item, answer)
		if err := w.showProgress(ctx); err != nil {
			return err
		}
		if len(w.applied)%unionEvery == 0 && len(w.applied) < len(w.items) {
			if err := w.writeUnion(ctx, refsOf(w.items[i+1:])); err != nil {
				return err
			}
		}
	}
	return w.target.AwaitEstablished(ctx, w.definitions)
}

func (w *waveApply) note(item release.Item, answer release.Applied) {
	w.applied = append(w.applied, item.Ref)
	w.facts[item.Ref] = answer.Fact
	if answer.Created || answer.Changed {
		w.changed++
		if item.Ref.IsCRD() {
			w.definitions = append(w.definitions, item.Ref.Name)
		}
	}
	if len(answer.TakenOver) > 0 {
		w.takenOver = append(w.takenOver, fmt.Sprintf("%s from %s", item.Ref, strings.Join(answer.TakenOver, ", ")))
	}
}

// explain names the object and its place, and what the order of the render has to do with the failure (S16).
func (w *waveApply) explain(err error, item release.Item, done int) error {
	var failure *release.Failure
	if !errors.As(err, &failure) {
		return err
	}
	where := ""
	if place := item.Object.Place.String(); place != "" {
		where = " (" + place + ")"
	}
	message := fmt.Sprintf("%s%s: %s", item.Ref, where, failure.Error())
	if hint := release.OrderHint(w.plan, item, failure); hint != "" {
		message += " — " + hint
	}
	return release.Problemf(release.DeployFailed, "%s. Wave %d stopped after %d of %s",
		shorten(message), w.in.Wave, done, release.Count(len(w.items), "object"))
}

// close writes the union and the wave's status, whatever the end was (S20). After a cancellation it takes a context of
// its own; its guard stays, so a worker that lost its lease writes nothing and leaves the pending list as it is. A
// context ends alike when the workflow cancels the step and when it is terminated, so one more beat tells which.
func (w *waveApply) close(ctx context.Context, l *lease, applyErr error) error {
	phase := v1alpha1.WaveApplied
	if applyErr != nil {
		phase = v1alpha1.WaveFailed
		if ctx.Err() != nil { // it goes on at another worker, or the sync is cancelled
			phase = v1alpha1.WaveApplying
		}
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		ctx = detached
		_ = l.beat(ctx) // what it says is in the guard
	}
	if applyErr != nil && w.attempt > 1 { // the attempt before may have come further
		w.uncertain = refsOf(w.items)
	}
	err := w.writeUnion(ctx, w.uncertain)
	if showErr := w.show(ctx, phase); err == nil {
		err = showErr
	}
	if len(w.takenOver) > 0 {
		w.event(ctx, w.rel, w.in.Sync, "Normal", "TookOver", "took over fields of an earlier client-side apply: %s", strings.Join(w.takenOver, "; "))
	}
	if applyErr != nil {
		return applyErr
	}
	return err
}

// writeUnion writes the inventory as what it held and what was applied since, with the facts of that (D30); pending is
// what may still be applied. Nothing is written when nothing changed.
func (w *waveApply) writeUnion(ctx context.Context, pending []release.ObjectRef) error {
	union := release.Union(w.recorded, w.applied)
	pending = release.Minus(release.Union(w.others, pending), union)
	if !w.setUnion(union) && release.Equal(pending, release.RefsOf(w.inv.Spec.Pending)) {
		return nil
	}
	for {
		w.inv.Spec.Pending = release.Records(pending)
		err := w.control.SaveInventory(ctx, w.inv)
		if !errors.Is(err, release.ErrConflict) {
			return inventoryFailure(err)
		}
		if _, err := w.fenced(ctx, w.in.Sync); err != nil {
			return err
		}
		if w.inv, err = w.control.Inventory(ctx, w.rel); err != nil {
			return err
		}
		w.setUnion(release.Union(release.RefsOf(w.inv.Spec.Objects), w.applied))
	}
}

// setUnion reports whether it changes what the inventory holds. What this attempt did not apply keeps its fact.
func (w *waveApply) setUnion(union []release.ObjectRef) bool {
	facts := release.FactsOf(w.inv)
	maps.Copy(facts, w.facts)
	return release.SetObjects(w.inv, union, facts)
}

// showProgress shows a wave that takes its time: after a second, and then every five seconds.
func (w *waveApply) showProgress(ctx context.Context) error {
	now := w.now()
	if now.Sub(w.began) < time.Second || now.Sub(w.shown) < 5*time.Second || len(w.applied) == len(w.items) {
		return nil
	}
	return w.show(ctx, v1alpha1.WaveApplying)
}

// show writes the state of this wave to status, and with it the whole list of waves.
func (w *waveApply) show(ctx context.Context, phase v1alpha1.WavePhase) error {
	w.shown = w.now()
	rel, err := w.writeStatus(ctx, w.rel, w.in.Sync, func(status *v1alpha1.ReleaseStatus) {
		showWaves(status, w.plan, w.in.Wave)
		setWave(status, w.in.Wave, func(wave *v1alpha1.WaveStatus) {
			wave.Phase, wave.Applied = phase, int32(len(w.applied))
			wave.BlockedBy, wave.BlockedByTotal = nil, 0
			if wave.StartedAt == nil {
				wave.StartedAt = w.timestamp()
			}
			if phase == v1alpha1.WaveApplied || phase == v1alpha1.WaveFailed {
				wave.FinishedAt = w.timestamp()
			}
		})
		if waits(w.rel) {
			status.Conditions = release.Conditions(status.Conditions, release.Outcome{
				Reason: release.Progressing, Generation: w.in.Sync.Generation, NewRender: true,
				Message: fmt.Sprintf("applying wave %d of render %s", w.in.Wave, release.ShortDigest(w.in.Sync.Digest)),
			}, w.now())
		}
	})
	if err == nil {
		w.rel = rel
	}
	return err
}

// showWaves makes status list the waves of the plan: those before the current one are applied, and of more than 20
// those around it are listed (D35).
func showWaves(status *v1alpha1.ReleaseStatus, plan *release.Plan, current int32) {
	known := map[int32]v1alpha1.WaveStatus{}
	for _, wave := range status.Waves {
		known[wave.Wave] = wave
	}
	waves := make([]v1alpha1.WaveStatus, 0, len(plan.Waves))
	for _, wave := range plan.Waves {
		shown, found := known[wave.Number]
		if !found {
			shown = v1alpha1.WaveStatus{Wave: wave.Number, Phase: v1alpha1.WavePending, Objects: int32(wave.Count)}
		}
		if wave.Number < current {
			shown.Phase, shown.Applied = v1alpha1.WaveApplied, shown.Objects
		}
		waves = append(waves, shown)
	}
	status.WavesTotal = int32(len(waves))
	status.Waves = release.WindowWaves(waves, current)
}

func refsOf(items []release.Item) []release.ObjectRef {
	refs := make([]release.ObjectRef, len(items))
	for i := range items {
		refs[i] = items[i].Ref
	}
	return refs
}
