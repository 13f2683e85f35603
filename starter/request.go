package main

import (
	"context"
	"fmt"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/control"
	"convoy.dev/convoy/internal/loops"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
)

func (p *program) reconcileCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "reconcile NAMESPACE/NAME",
		GroupID: groupAct,
		Short:   "Look at a Release now, and sync where that is due",
		Long: `Look at a Release now, as if its interval had passed: its source is rendered, and the cluster compared with what the
last sync left. A sync starts where one is due: in mode Auto when something differs. In mode Manual only
` + "`convoy sync`" + ` starts one.`,
		Example:           "  convoy reconcile team-a/shop",
		Args:              oneRelease,
		ValidArgsFunction: p.completeRelease,
		RunE: does(func(ctx context.Context, args []string) error {
			return p.withLoop(ctx, args[0], func(asked *request) error {
				if err := p.loops(asked.temporal).Reconcile(ctx, asked.key); err != nil {
					return asked.notReached(err)
				}
				p.printf("Release %s is looked at now", asked.key)
				p.howToLook(ctx, asked)
				return nil
			})
		}),
	}
}

// request is what a person asks of the loop of a Release.
type request struct {
	*temporal
	control *control.Client
	rel     *v1alpha1.Release
	key     types.NamespacedName
	id      string
	in      workflows.SyncRequest
	queue   string // of the loop
}

// withLoop reads a Release that may be synced, connects to Temporal, and works with its loop.
func (p *program) withLoop(ctx context.Context, arg string, work func(*request) error) error {
	cluster, rel, err := p.readRelease(ctx, arg)
	if err != nil {
		return err
	}
	if err := mayRequest(rel); err != nil {
		return err
	}
	t, err := p.dialTemporal(ctx)
	if err != nil {
		return err
	}
	defer t.Close()
	return work(&request{
		temporal: t, control: cluster, rel: rel, key: types.NamespacedName{Namespace: rel.Namespace, Name: rel.Name}, queue: p.globals.taskQueue,
	})
}

// mayRequest refuses where no sync would come of a request soon.
func mayRequest(rel *v1alpha1.Release) error {
	switch {
	case rel.DeletionTimestamp != nil:
		return failf(exitRefused, "Release %s/%s is being deleted: no sync starts any more", rel.Namespace, rel.Name)
	case rel.Spec.Suspend:
		return failf(exitRefused, "Release %[1]s/%[2]s is suspended: no sync starts before `convoy resume %[1]s/%[2]s`", rel.Namespace, rel.Name)
	}
	return nil
}

func (p *program) loops(t *temporal) loops.Loops {
	return loops.Loops{Client: t.Client, TaskQueue: p.globals.taskQueue}
}

func (r *request) notReached(err error) error {
	return fmt.Errorf("reach the loop of Release %s in the Temporal namespace %q at %s: %w", r.key, r.temporal.namespace, r.address, err)
}

// askForSync asks the loop of a Release for a sync, and with --wait shows what happens until the request is answered.
func (p *program) askForSync(ctx context.Context, arg string, flags syncFlags) error {
	return p.withLoop(ctx, arg, func(asked *request) error {
		if asked.id = flags.id; asked.id == "" {
			asked.id = loops.NewID()
		}
		asked.in = workflows.SyncRequest{ID: asked.id, Force: flags.force, RequestedBy: flags.requestedBy}
		if answer := asked.answerIn(asked.rel); answer != nil {
			p.printf("request %s was answered already: %s", asked.id, answer.Result)
		} else {
			if err := p.loops(asked.temporal).Sync(ctx, asked.key, asked.in); err != nil {
				return asked.notReached(err)
			}
			p.printf("sync of Release %s asked for, request %s", asked.key, asked.id)
		}
		if flags.wait {
			return p.followRequest(ctx, asked)
		}
		p.howToLook(ctx, asked)
		return nil
	})
}

// howToLook says where the loop is to be seen, and whether anybody runs it.
func (p *program) howToLook(ctx context.Context, asked *request) {
	asked.findQueue(ctx)
	id := release.ReleaseWorkflowID(asked.key.Namespace, asked.key.Name)
	p.printf("  workflow  %s\nlook at it with\n  convoy status %s\n  temporal workflow query --workflow-id %s --type %s", id, asked.key, id, workflows.QueryStatus)
	if pollers, err := asked.pollers(ctx, asked.queue); err == nil && pollers == 0 {
		p.warnf("warning: %s", noWorker(asked.queue))
	}
}

// findQueue looks which task queue the loop is on: one that ran already keeps its own.
func (r *request) findQueue(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	described, err := r.DescribeWorkflowExecution(ctx, release.ReleaseWorkflowID(r.key.Namespace, r.key.Name), "")
	if name := described.GetExecutionConfig().GetTaskQueue().GetName(); err == nil && name != "" {
		r.queue = name
	}
}

// answerIn is the answer to the request in a Release's status, nil while there is none.
func (r *request) answerIn(rel *v1alpha1.Release) *v1alpha1.HandledRequest {
	for i := range rel.Status.LastHandledRequests {
		if answer := &rel.Status.LastHandledRequests[i]; answer.ID == r.id {
			return answer
		}
	}
	return nil
}
