package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
	"convoy.dev/convoy/workflows"

	"github.com/spf13/cobra"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
	sdk "go.temporal.io/sdk/temporal"
	"golang.org/x/term"
)

const longApprove = `Let a waiting sync of a Release go on past a gate that asks for a person (spec.syncPolicy.waves[].approval and
spec.syncPolicy.finalGate.approval). The word is for one render: --digest names it. Without --digest the gate that
waits is shown, and its render is taken when you confirm, or with --yes.

Without --wave or --final the gate is meant that the sync waits at. A gate can be approved before its turn; then the sync
does not wait there. A second approval changes nothing, and says who gave the first.`

const longReject = `End a sync of a Release at a gate that asks for a person. What its waves applied stays. The loop then leaves this render
alone until the source brings another one, the Release is changed, or somebody asks for a sync. The flags are those of
` + "`convoy approve`" + `.`

// approveFlags are the flags of approve and reject.
type approveFlags struct {
	wave           int32
	waveGiven      bool
	final, yes     bool
	digest         string
	by, reason     string
	update, action string // the update, and what it does in words
}

func (p *program) approveCommand() *cobra.Command {
	return p.decisionCommand(approveFlags{update: workflows.UpdateApprove, action: "approve"}, &cobra.Command{
		Use: "approve NAMESPACE/NAME", Short: "Let a sync go on that waits for a person", Long: longApprove,
		Example: "  convoy approve team-a/shop                     # shows what waits, and asks\n  convoy approve team-a/shop --wave 2 --digest sha256:… --reason 'the figures look right'",
	})
}

func (p *program) rejectCommand() *cobra.Command {
	return p.decisionCommand(approveFlags{update: workflows.UpdateReject, action: "reject"}, &cobra.Command{
		Use: "reject NAMESPACE/NAME", Short: "End a sync that waits for a person", Long: longReject,
		Example: "  convoy reject team-a/shop --reason 'not on a Friday'",
	})
}

func (p *program) decisionCommand(flags approveFlags, cmd *cobra.Command) *cobra.Command {
	cmd.GroupID, cmd.Args, cmd.ValidArgsFunction = groupAct, oneRelease, p.completeRelease
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		flags.waveGiven = cmd.Flags().Changed("wave")
		return does(func(ctx context.Context, args []string) error { return p.decide(ctx, args[0], flags, cmd.InOrStdin()) })(cmd, args)
	}
	cmd.Flags().Int32Var(&flags.wave, "wave", 0, "number of the wave that waits (default: the gate that the sync waits at)")
	cmd.Flags().BoolVar(&flags.final, "final", false, "the gate behind the last wave")
	cmd.Flags().StringVar(&flags.digest, "digest", "", "digest of the render that the word is for: sha256: and 64 hex digits")
	cmd.Flags().BoolVar(&flags.yes, "yes", false, "take the digest of the render that waits, without being asked")
	cmd.Flags().StringVar(&flags.by, "by", "", "who decides (default: your user name)")
	cmd.Flags().StringVar(&flags.reason, "reason", "", "why, for status and history")
	return cmd
}

func (p *program) decide(ctx context.Context, arg string, flags approveFlags, stdin io.Reader) error {
	switch {
	case flags.final && flags.waveGiven:
		return failf(exitUsage, "--wave and --final are two gates: use one of them")
	case flags.digest != "" && !digestForm.MatchString(flags.digest):
		return failf(exitUsage, "--digest %q: write sha256: and 64 hex digits, as `convoy status -o json` shows them", flags.digest)
	}
	if flags.by == "" {
		flags.by = p.userName()
	}
	_, rel, err := p.readRelease(ctx, arg)
	if err != nil {
		return err
	}
	if flags.digest == "" {
		if flags.digest, err = p.confirm(rel, flags, stdin); err != nil {
			return err
		}
	}
	t, err := p.dialTemporal(ctx)
	if err != nil {
		return err
	}
	defer t.Close()
	answer, err := p.sendDecision(ctx, t, rel, flags)
	if err != nil {
		return err
	}
	p.printDecision(arg, flags, answer)
	return nil
}

// confirm shows what waits, and takes its digest when the person agrees.
func (p *program) confirm(rel *v1alpha1.Release, flags approveFlags, stdin io.Reader) (string, error) {
	gate, approval := waitingGate(rel, flags)
	if approval == nil {
		return "", nothingWaits(rel, flags.action)
	}
	last := rel.Status.LastAttempted
	p.printf("Release %s/%s -> %s: %s waits for an approval of\n  %s\n  %s", rel.Namespace, rel.Name, targetName(rel), gate,
		renderOf(last.Digest, last.Revision), approval.Digest)
	if approval.ExpiresAt != nil {
		p.printf("  it expires %s", approval.ExpiresAt.UTC().Format(time.RFC3339))
	}
	if flags.yes {
		return approval.Digest, nil
	}
	if file, ok := stdin.(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
		return "", failf(exitUsage, "nobody can be asked here: name the render with --digest %s, or take the one above with --yes", approval.Digest)
	}
	if !p.agrees(stdin, flags.action) {
		return "", failf(exitFailed, "nothing was sent")
	}
	return approval.Digest, nil
}

// agrees asks a question, whose answer is yes only when it is typed.
func (p *program) agrees(stdin io.Reader, action string) bool {
	fmt.Fprintf(p.stdout, "%s it? [y/N] ", action)
	line, _ := bufio.NewReader(stdin).ReadString('\n')
	line = strings.ToLower(strings.TrimSpace(line))
	return line == "y" || line == "yes"
}

// waitingGate finds the gate that waits for a person, by the flags or by what status says; nil when none does.
func waitingGate(rel *v1alpha1.Release, flags approveFlags) (gate string, approval *v1alpha1.ApprovalStatus) {
	if last := rel.Status.LastAttempted; last == nil || last.Result != v1alpha1.ResultRunning {
		return "", nil
	}
	for i := range rel.Status.Waves {
		wave := &rel.Status.Waves[i]
		for _, final := range []bool{false, true} {
			approval := *release.ApprovalAt(wave, final)
			meant := !flags.final && !flags.waveGiven || final == flags.final && (final || wave.Wave == flags.wave)
			if meant && approval != nil && approval.Decision == "" {
				return release.GateName(wave.Wave, final), approval
			}
		}
	}
	return "", nil
}

// nothingWaits says what the Release is at instead.
func nothingWaits(rel *v1alpha1.Release, action string) error {
	name, last := rel.Namespace+"/"+rel.Name, rel.Status.LastAttempted
	switch {
	case last == nil:
		return failf(exitRefused, "nothing of Release %s waits for an approval: no sync has begun", name)
	case last.Result != v1alpha1.ResultRunning:
		return failf(exitRefused, "nothing of Release %s waits for an approval: its last sync ended as %s. `convoy sync %[1]s` asks for another", name, attemptResult(last))
	}
	return failf(exitRefused, "no such gate of Release %s waits for an approval now: see `convoy status %[1]s`. To %[2]s a gate before its turn, name it and the render: --wave N --digest %[3]s",
		name, action, last.Digest)
}

// decisionFor bounds how long a worker may take to answer.
const decisionFor = 15 * time.Second

// sendDecision sends the update to the sync that runs.
func (p *program) sendDecision(ctx context.Context, t *temporal, rel *v1alpha1.Release, flags approveFlags) (workflows.ApprovalAnswer, error) {
	in := workflows.ApprovalRequest{Digest: flags.digest, Final: flags.final, By: flags.by, Reason: flags.reason}
	if flags.waveGiven {
		in.Wave = &flags.wave
	}
	sending, cancel := context.WithTimeout(ctx, decisionFor)
	defer cancel()
	var answer workflows.ApprovalAnswer
	handle, err := t.UpdateWorkflow(sending, client.UpdateWorkflowOptions{
		WorkflowID: release.SyncWorkflowID(rel.Namespace, rel.Name), UpdateName: flags.update, Args: []any{in},
		WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err == nil {
		err = handle.Get(sending, &answer)
	}
	var gone *serviceerror.NotFound
	var refused *sdk.ApplicationError
	var silent *client.WorkflowUpdateServiceTimeoutOrCanceledError
	switch {
	case err == nil:
		return answer, nil
	case errors.As(err, &gone):
		return answer, noSyncRuns(rel)
	case errors.As(err, &refused):
		return answer, failf(exitRefused, "%s", refused.Message())
	case ctx.Err() == nil && (sending.Err() != nil || errors.As(err, &silent)):
		return answer, failf(exitUnreachable, "no worker answered within %s: the word may still be taken as soon as one does. %s; `convoy why %s/%s` says whether it was",
			decisionFor, noWorker(p.globals.taskQueue), rel.Namespace, rel.Name)
	}
	return answer, err
}

func noSyncRuns(rel *v1alpha1.Release) error {
	text := fmt.Sprintf("no sync of Release %s/%s runs, so nothing waits for an approval", rel.Namespace, rel.Name)
	if last := rel.Status.LastAttempted; last != nil && last.Result != v1alpha1.ResultRunning {
		text += fmt.Sprintf(": the last one (render %s) ended as %s", release.ShortDigest(last.Digest), attemptResult(last))
		if last.Message != "" {
			text += ", " + last.Message
		}
	}
	return failf(exitRefused, "%s. `convoy sync %s/%s` asks for another", text, rel.Namespace, rel.Name)
}

func (p *program) printDecision(arg string, flags approveFlags, answer workflows.ApprovalAnswer) {
	gate, verb := release.GateName(answer.Wave, answer.Final), strings.ToLower(string(answer.Decision))
	if answer.By != strings.TrimSpace(flags.by) {
		p.printf("%s of Release %s was %s already, by %s at %s", gate, arg, verb, answer.By, answer.At.UTC().Format(time.RFC3339))
		return
	}
	p.printf("%s of Release %s: render %s is %s by %s", gate, arg, release.ShortDigest(answer.Digest), verb, answer.By)
}
