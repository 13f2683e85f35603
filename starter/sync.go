package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	"github.com/spf13/cobra"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/temporal"
)

const longSync = `Ask for a sync of a Release now: dry run, presync hooks, apply wave by wave, prune, postsync hooks.

The request goes to the loop of the Release, a Temporal workflow that the workers run, and has an id. Syncs of a Release
run one at a time: a request that comes while one runs is served by the next. status.lastHandledRequests of the Release
holds the answers; the same --id again asks for nothing new.

With --wait the progress is shown until the request is answered: redrawn in a terminal, a line for each change elsewhere.
A sync that ran already is shown too. Ctrl-C ends the watching and not the sync.

--digest starts a sync of a stored render itself, past the loop. While another sync runs it is not started; with --wait
the running one is shown until it ends, and the exit code still is 17.`

// syncFlags are the flags of sync.
type syncFlags struct {
	force       bool
	wait        bool
	digest      string
	requestedBy string
	id          string
}

func (p *program) syncCommand() *cobra.Command {
	var flags syncFlags
	cmd := &cobra.Command{
		Use:     "sync NAMESPACE/NAME",
		GroupID: groupAct,
		Short:   "Sync a Release now",
		Long:    longSync,
		Example: "  convoy sync team-a/shop --wait\n  convoy sync team-a/shop --force            # skip the dry run\n" +
			"  convoy sync team-a/shop --digest sha256:…  # a stored render again",
		Args:              oneRelease,
		ValidArgsFunction: p.completeRelease,
		RunE:              does(func(ctx context.Context, args []string) error { return p.sync(ctx, args[0], flags) }),
	}
	cmd.Flags().BoolVar(&flags.force, "force", false, "skip the dry run; what the cluster rejects still fails when it is applied")
	cmd.Flags().BoolVar(&flags.wait, "wait", false, "show the progress until the request is answered; the exit code tells the reason")
	cmd.Flags().StringVar(&flags.id, "id", "", "id of the request; the same id again asks for nothing new (default: a random one)")
	cmd.Flags().StringVar(&flags.digest, "digest", "", "sync this render of the render store instead of the source: sha256: and 64 hex digits")
	cmd.Flags().StringVar(&flags.requestedBy, "requested-by", "", "who asks, for status and history (default: your user name)")
	return cmd
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func (p *program) sync(ctx context.Context, arg string, flags syncFlags) error {
	if flags.digest != "" && !digestForm.MatchString(flags.digest) {
		return failf(exitUsage, "--digest %q: write sha256: and 64 hex digits, as `convoy status -o json` shows them", flags.digest)
	}
	if flags.requestedBy == "" {
		flags.requestedBy = p.userName()
	}
	switch {
	case flags.id != "" && flags.digest != "":
		return failf(exitUsage, "--id belongs to a request, and --digest starts a sync itself: use one of them")
	case flags.id != "" && release.CheckRequestID(flags.id) != nil:
		return failf(exitUsage, "--id: %v", release.CheckRequestID(flags.id))
	case flags.digest == "":
		return p.askForSync(ctx, arg, flags)
	}
	return p.syncStored(ctx, arg, flags)
}

// syncStored starts a sync of a stored render.
func (p *program) syncStored(ctx context.Context, arg string, flags syncFlags) error {
	cluster, rel, err := p.readRelease(ctx, arg)
	if err != nil {
		return err
	}
	t, err := p.dialTemporal(ctx)
	if err != nil {
		return err
	}
	defer t.Close()
	runID, running, err := p.start(ctx, t, rel, flags)
	if err != nil {
		return err
	}
	run := &temporalRun{
		temporal: t, control: cluster, namespace: rel.Namespace, name: rel.Name, taskQueue: p.globals.taskQueue,
		workflowID: release.SyncWorkflowID(rel.Namespace, rel.Name), runID: runID,
	}
	if running {
		return p.alreadyRunning(ctx, run, rel, flags.wait)
	}
	if flags.wait {
		return p.follow(ctx, run, rel)
	}
	p.announce(ctx, run, rel)
	return nil
}

// start starts the sync. running says that runID is an earlier sync that still runs, and nothing was started.
func (p *program) start(ctx context.Context, t *temporal, rel *v1alpha1.Release, flags syncFlags) (runID string, running bool, err error) {
	options := startOptions(rel, flags, p.globals.taskQueue)
	in := workflows.SyncInput{
		Namespace: rel.Namespace, Name: rel.Name, Force: flags.force, RequestedBy: flags.requestedBy, Digest: flags.digest,
	}
	registered, err := t.searchAttributes(ctx)
	if attributes, ok := attributesOf(rel, registered); err == nil && ok {
		options.TypedSearchAttributes = attributes
	} else {
		p.warnf("note: Temporal does not know convoy's search attributes, so this sync is found by its id only: `convoy install` registers them")
	}
	var w *workflows.Workflows
	started, err := t.ExecuteWorkflow(ctx, options, w.SyncWorkflow, in)
	if refusesAttributes(err) {
		// They were registered a moment ago, and not every part of Temporal knows yet.
		options.TypedSearchAttributes = sdk.NewSearchAttributes()
		started, err = t.ExecuteWorkflow(ctx, options, w.SyncWorkflow, in)
	}
	var already *serviceerror.WorkflowExecutionAlreadyStarted
	if errors.As(err, &already) {
		return already.RunId, true, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("start the sync of Release %s/%s in the Temporal namespace %q at %s: %w",
			rel.Namespace, rel.Name, t.namespace, t.address, err)
	}
	return started.GetRunID(), false, nil
}

func refusesAttributes(err error) bool {
	var invalid *serviceerror.InvalidArgument
	return errors.As(err, &invalid) && strings.Contains(strings.ToLower(invalid.Error()), "search attribute")
}

// startOptions: one id for all syncs of a Release, so that Temporal itself keeps a second one from starting (D16).
func startOptions(rel *v1alpha1.Release, flags syncFlags, taskQueue string) client.StartWorkflowOptions {
	return client.StartWorkflowOptions{
		ID:                                       release.SyncWorkflowID(rel.Namespace, rel.Name),
		TaskQueue:                                taskQueue,
		WorkflowIDConflictPolicy:                 enumspb.WORKFLOW_ID_CONFLICT_POLICY_FAIL,
		WorkflowIDReusePolicy:                    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		WorkflowExecutionErrorWhenAlreadyStarted: true,
		StaticSummary:                            staticSummary(rel, flags),
		StaticDetails:                            staticDetails(rel, flags),
	}
}

// staticSummary is what the Web UI shows of the sync: "team-a/web -> prod-eu (manual, force)".
func staticSummary(rel *v1alpha1.Release, flags syncFlags) string {
	how := "manual"
	if flags.force {
		how += ", force"
	}
	if flags.digest != "" {
		how += ", render " + release.ShortDigest(flags.digest)
	}
	text := fmt.Sprintf("%s/%s -> %s (%s)", rel.Namespace, rel.Name, targetName(rel), how)
	return release.Summary(text)
}

func staticDetails(rel *v1alpha1.Release, flags syncFlags) string {
	lines := []string{
		fmt.Sprintf("- Release `%s/%s`, generation %d", rel.Namespace, rel.Name, rel.Generation),
		fmt.Sprintf("- asked for by %s", orDash(oneLine(flags.requestedBy))),
		fmt.Sprintf("- look at it with `convoy status %s/%s`", rel.Namespace, rel.Name),
	}
	if flags.digest != "" {
		lines = append(lines, fmt.Sprintf("- stored render `%s` instead of the source", flags.digest))
	}
	if flags.force {
		lines = append(lines, "- forced: without the dry run")
	}
	return strings.Join(lines, "\n")
}

// announce says where the sync is to be seen.
func (p *program) announce(ctx context.Context, run *temporalRun, rel *v1alpha1.Release) {
	p.printf("sync of Release %s/%s started", rel.Namespace, rel.Name)
	p.howToFollow(run)
	if pollers, err := run.pollers(ctx); err == nil && pollers == 0 {
		p.warnf("warning: %s", noWorker(run.taskQueue))
	}
}

func (p *program) howToFollow(run *temporalRun) {
	p.printf("  workflow  %s\n  run       %s", run.workflowID, run.runID)
	p.printf("look at it with\n  convoy status %s/%s\n  %s", run.namespace, run.name, showCommand(run.workflowID, run.runID))
}

// noWorker is what to do when nobody would run a sync.
func noWorker(taskQueue string) string {
	return fmt.Sprintf("no worker polls task queue %s, so the sync waits for one: start one with `worker --task-queue %s`, or name another queue with --task-queue",
		taskQueue, taskQueue)
}

// alreadyRunning ends a request that was not started.
func (p *program) alreadyRunning(ctx context.Context, run *temporalRun, rel *v1alpha1.Release, wait bool) error {
	if !wait {
		p.howToFollow(run)
		return failf(exitRefused, "a sync of Release %s/%s runs already (run %s), and yours was not started: wait for it (--wait shows it), or stop it (%s)",
			rel.Namespace, rel.Name, run.runID, cancelCommand(run.workflowID))
	}
	p.printf("a sync of Release %s/%s runs already (run %s): following that one, yours was not started", rel.Namespace, rel.Name, run.runID)
	if err := p.follow(ctx, run, rel); err != nil {
		var ended *failure
		if errors.As(err, &ended) && (ended.code < exitUnappliable || ended.code == exitInterrupted) {
			return err
		}
		p.warnf("convoy: that sync: %v", err)
	}
	return failf(exitRefused, "your sync was not started, because another one ran: run the command again")
}

func cancelCommand(workflowID string) string {
	return "temporal workflow cancel --workflow-id " + workflowID
}
