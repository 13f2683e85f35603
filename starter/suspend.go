package main

import (
	"context"

	"convoy.dev/convoy/api/v1alpha1"

	"github.com/spf13/cobra"
)

func (p *program) suspendCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "suspend NAMESPACE/NAME",
		GroupID: groupAct,
		Short:   "Start no more syncs of a Release",
		Long: `Set spec.suspend of a Release: no sync starts until ` + "`convoy resume`" + `, whatever changes. A sync that runs is left to its
end, and requests that wait are kept. It can be repeated.`,
		Example:           "  convoy suspend team-a/shop",
		Args:              oneRelease,
		ValidArgsFunction: p.completeRelease,
		RunE: does(func(ctx context.Context, args []string) error {
			rel, before, err := p.setSuspend(ctx, args[0], true)
			if err != nil {
				return err
			}
			if before {
				p.printf("Release %s is suspended already", args[0])
			} else {
				p.printf("Release %s is suspended: no sync starts before `convoy resume %s`; requests that wait are kept", args[0], args[0])
			}
			p.stillRuns(rel)
			return nil
		}),
	}
}

func (p *program) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "resume NAMESPACE/NAME",
		GroupID: groupAct,
		Short:   "Start syncs of a suspended Release again",
		Long: `Take spec.suspend of a Release away: it is looked at as soon as a worker takes it, and requests that waited are
served. It can be repeated. A worker has to watch the Releases (worker --watch, which is the default).`,
		Example:           "  convoy resume team-a/shop",
		Args:              oneRelease,
		ValidArgsFunction: p.completeRelease,
		RunE: does(func(ctx context.Context, args []string) error {
			_, before, err := p.setSuspend(ctx, args[0], false)
			if err != nil {
				return err
			}
			if before {
				p.printf("Release %s is resumed: it is looked at, and requests that waited are served, as soon as a worker takes it", args[0])
			} else {
				p.printf("Release %s is not suspended", args[0])
			}
			return nil
		}),
	}
}

// setSuspend sets spec.suspend, and tells what it was before.
func (p *program) setSuspend(ctx context.Context, arg string, suspend bool) (rel *v1alpha1.Release, before bool, err error) {
	cluster, rel, err := p.readRelease(ctx, arg)
	if err != nil {
		return nil, false, err
	}
	before = rel.Spec.Suspend
	return rel, before, cluster.SetSuspend(ctx, rel, suspend)
}

// stillRuns says what a suspension does not stop.
func (p *program) stillRuns(rel *v1alpha1.Release) {
	if rel.DeletionTimestamp != nil {
		p.printf("it is being deleted, and that goes on")
	}
	if last := rel.Status.LastAttempted; last != nil && last.Result == v1alpha1.ResultRunning {
		p.printf("a sync runs and is left to its end (run %s); stop it with `%s`", last.RunID, cancelCommand(last.WorkflowID))
	}
}
