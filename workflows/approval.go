package workflows

import (
	"fmt"
	"strings"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The updates of a SyncWorkflow.
const (
	UpdateApprove = "approve"
	UpdateReject  = "reject"
)

// ApprovalRequest is the input of the updates approve and reject. People type it:
//
//	temporal workflow update execute --workflow-id sync:team-a:shop --name approve \
//	  --input '{"digest":"sha256:…","wave":1,"by":"alice","reason":"the figures look right"}'
type ApprovalRequest struct {
	// Digest of the render that it is for: that of the sync.
	Digest string `json:"digest"`
	// Wave in front of which the gate stands. Absent, it is the gate that the sync waits at, or the only one of the plan.
	Wave *int32 `json:"wave,omitempty"`
	// Final means the gate behind the last wave.
	Final bool `json:"final,omitempty"`
	// By names the person, and Reason says why, in at most 200 and 1000 bytes.
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
}

// ApprovalAnswer is the result of the updates: the decision that holds, whoever made it.
type ApprovalAnswer struct {
	Wave     int32                     `json:"wave"`
	Final    bool                      `json:"final,omitempty"`
	Decision v1alpha1.ApprovalDecision `json:"decision"`
	By       string                    `json:"by"`
	Reason   string                    `json:"reason"`
	At       time.Time                 `json:"at"`
	Digest   string                    `json:"digest"`
}

// GateStatus is an approval in SyncStatus.
type GateStatus struct {
	// Gate names it in words: "wave 1", "the final gate".
	Gate string `json:"gate"`
	// Waiting: the sync is at the gate, and waits for a person.
	Waiting bool `json:"waiting,omitempty"`
	v1alpha1.ApprovalStatus
}

const (
	maxBy     = 200
	maxReason = 1000
)

// approval is a gate that asks for a person.
type approval struct {
	activities.PlannedWave
	status v1alpha1.ApprovalStatus
	// waiting: the sync waits here for a person. recorded: status has the decision.
	waiting, recorded bool
}

func (g *approval) decided() bool  { return g.status.Decision != "" }
func (g *approval) rejected() bool { return g != nil && g.status.Decision == v1alpha1.Rejected }

// planApprovals finds the gates of the plan that ask for a person.
func (s *sync) planApprovals() {
	all := s.plan.Waves
	if s.plan.FinalGate != nil {
		all = append(all[:len(all):len(all)], *s.plan.FinalGate)
	}
	for _, wave := range all {
		if wave.Approval == nil {
			continue
		}
		gate := &approval{PlannedWave: wave, status: v1alpha1.ApprovalStatus{Digest: s.plan.Sync.Digest}}
		if wave.Approval.Held != nil {
			gate.status = *wave.Approval.Held
			if gate.status.At == nil {
				gate.status.At = &metav1.Time{}
			}
		}
		s.gates = append(s.gates, gate)
	}
}

// approvalAt is the approval of a gate; nil when it asks nobody.
func (s *sync) approvalAt(wave activities.PlannedWave) *approval {
	for _, gate := range s.gates {
		if gate.Final == wave.Final && gate.Number == wave.Number {
			return gate
		}
	}
	return nil
}

// shown is the status with the approvals.
func (s *sync) shown() SyncStatus {
	status := s.status
	for _, gate := range s.gates {
		status.Approvals = append(status.Approvals, GateStatus{Gate: gate.Name(), Waiting: gate.waiting, ApprovalStatus: gate.status})
	}
	return status
}

// handleApprovals registers the updates.
func (s *sync) handleApprovals(ctx workflow.Context) error {
	err := workflow.SetUpdateHandlerWithOptions(ctx, UpdateApprove, func(ctx workflow.Context, in ApprovalRequest) (ApprovalAnswer, error) {
		return s.decide(ctx, in, v1alpha1.Approved)
	}, workflow.UpdateHandlerOptions{
		Validator:   func(in ApprovalRequest) error { return s.mayDecide(in, v1alpha1.Approved) },
		Description: `let a wave begin: {"digest":"sha256:…","wave":1,"by":"alice","reason":"…"}; "final":true for the gate behind the last wave`,
	})
	if err != nil {
		return err
	}
	return workflow.SetUpdateHandlerWithOptions(ctx, UpdateReject, func(ctx workflow.Context, in ApprovalRequest) (ApprovalAnswer, error) {
		return s.decide(ctx, in, v1alpha1.Rejected)
	}, workflow.UpdateHandlerOptions{
		Validator:   func(in ApprovalRequest) error { return s.mayDecide(in, v1alpha1.Rejected) },
		Description: `end the sync at a wave: {"digest":"sha256:…","wave":1,"by":"alice","reason":"…"}`,
	})
}

// mayDecide is the validator of the updates: what it refuses leaves no trace in the history.
func (s *sync) mayDecide(in ApprovalRequest, decision v1alpha1.ApprovalDecision) error {
	gate, why := s.gateOf(in)
	if why == "" {
		why = s.refuses(in, gate, decision)
	}
	if why == "" {
		return nil
	}
	return temporal.NewApplicationError(why, activities.Refused)
}

// refuses says why a decision is not taken; empty when it is.
func (s *sync) refuses(in ApprovalRequest, gate *approval, decision v1alpha1.ApprovalDecision) string {
	digest := s.plan.Sync.Digest
	switch {
	case in.Digest == "":
		return fmt.Sprintf("digest is missing: it names the render that the word is for, and this sync is of %s", digest)
	case in.Digest != digest:
		return fmt.Sprintf("the word is for render %s, and this sync is of %s: look at what it brings, and name its digest", in.Digest, digest)
	case strings.TrimSpace(in.By) == "":
		return `by is empty: name the person, as in "by":"alice"`
	case len(in.By) > maxBy || len(in.Reason) > maxReason:
		return fmt.Sprintf("by has %d bytes and reason %d: at most %d and %d are allowed", len(in.By), len(in.Reason), maxBy, maxReason)
	case gate.status.Decision == v1alpha1.Expired:
		return fmt.Sprintf("the approval of %s expired at %s, and the sync ends: the next one asks again", gate.Name(), stamp(gate.status.At))
	case gate.decided() && gate.status.Decision != decision:
		return fmt.Sprintf("%s was %s by %s at %s: a decision does not change", gate.Name(), strings.ToLower(string(gate.status.Decision)), gate.status.By, stamp(gate.status.At))
	case !gate.decided() && s.closed:
		return "the sync ends: it never comes to " + gate.Name()
	}
	return ""
}

// stamp is a time in a message. In UTC no worker's time zone has a part in it, which the checker cannot see.
func stamp(at *metav1.Time) string {
	return at.UTC().Format(time.RFC3339) //workflowcheck:ignore
}

// gateOf is the gate that a request means; why says what is wrong with it.
func (s *sync) gateOf(in ApprovalRequest) (gate *approval, why string) {
	switch {
	case s.plan.Sync.Digest == "":
		return nil, "the sync has made no plan yet: ask again in a moment"
	case len(s.gates) == 0:
		return nil, "no gate of this sync asks for an approval (spec.syncPolicy.waves[].approval, spec.syncPolicy.finalGate.approval)"
	case in.Final && in.Wave != nil:
		return nil, "wave and final are two gates: name one of them"
	case in.Final || in.Wave != nil:
		for _, gate := range s.gates {
			if gate.Final == in.Final && (in.Final || gate.Number == *in.Wave) {
				return gate, ""
			}
		}
		return nil, "no approval is asked for there; one is at: " + s.gateNames()
	}
	for _, gate := range s.gates {
		if gate.waiting {
			return gate, ""
		}
	}
	if len(s.gates) > 1 {
		return nil, "the sync waits at none of its gates now: name the wave (or final) that is meant, of: " + s.gateNames()
	}
	return s.gates[0], ""
}

func (s *sync) gateNames() string {
	names := make([]string, len(s.gates))
	for i, gate := range s.gates {
		names[i] = gate.Name()
	}
	return strings.Join(names, ", ")
}

// decide takes a decision, and answers with the one that holds. It never waits: the sync records it when it comes to the
// gate.
func (s *sync) decide(ctx workflow.Context, in ApprovalRequest, decision v1alpha1.ApprovalDecision) (ApprovalAnswer, error) {
	gate, _ := s.gateOf(in)
	if !gate.decided() {
		gate.settle(ctx, decision, strings.TrimSpace(in.By), in.Reason)
		if gate.rejected() && !gate.waiting {
			s.vetoed.SendAsync(true)
		}
	}
	status := gate.status
	return ApprovalAnswer{
		Wave: gate.Number, Final: gate.Final, Decision: status.Decision, By: status.By, Reason: status.Reason, At: status.At.Time, Digest: status.Digest,
	}, nil
}

func (g *approval) settle(ctx workflow.Context, decision v1alpha1.ApprovalDecision, by, reason string) {
	at := metav1.NewTime(workflow.Now(ctx).Truncate(time.Second))
	g.status.Decision, g.status.By, g.status.Reason, g.status.At = decision, by, reason, &at
}

// approval waits for a person, where the gate asks for one who has not decided yet, and records what became of it.
func (s *sync) approval(ctx workflow.Context, wave activities.PlannedWave, in activities.WaveInput) error {
	gate := s.atGate
	if gate == nil || wave.Approval.Held != nil {
		return nil
	}
	if !gate.decided() {
		if err := s.awaitPerson(ctx, gate, in); err != nil {
			return err
		}
	}
	if gate.rejected() {
		return s.refuse(ctx, gate)
	}
	if err := s.recordDecision(ctx, gate); err != nil {
		return err
	}
	if gate.status.Decision == v1alpha1.Expired {
		return temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("nobody approved render %s at %s within %s; the next sync asks again", release.ShortDigest(gate.status.Digest), gate.Name(), wave.Approval.Expires),
			string(release.WaveTimeout), nil)
	}
	return nil
}

// recordDecision writes a decision to status.
func (s *sync) recordDecision(ctx workflow.Context, gate *approval) error {
	err := callOnly(ctx, s.option(gate.verdict(), "decision-"+gateID(gate.PlannedWave), time.Minute), act.RecordApproval, s.decision(gate))
	gate.recorded = err == nil
	return err
}

func (s *sync) decision(gate *approval) activities.ApprovalInput {
	gate.status.Spec = s.plan.Sync.Spec
	return activities.ApprovalInput{WaveInput: s.atWave(gate.PlannedWave), Approval: gate.status}
}

// veto is the gate at which a person has rejected the render, also one that the sync has not come to; nil when nobody has.
func (s *sync) veto() *approval {
	for _, gate := range s.gates {
		if gate.rejected() {
			return gate
		}
	}
	return nil
}

// refuse records a rejection, and ends the sync for it.
func (s *sync) refuse(ctx workflow.Context, gate *approval) error {
	if err := s.recordDecision(ctx, gate); err != nil {
		return err
	}
	s.rejection = release.RejectedBy(gate.status, gate.Name())
	return errVetoed
}

// early are decisions that the end of the sync has to keep, because it never came to their gates.
func (s *sync) early() []activities.ApprovalInput {
	var kept []activities.ApprovalInput
	for _, gate := range s.gates {
		if gate.decided() && !gate.recorded && gate.Approval.Held == nil {
			kept = append(kept, s.decision(gate))
		}
	}
	return kept
}

// verdict is what the Temporal UI says of the record.
func (g *approval) verdict() string {
	text := g.Name() + ": the approval expired"
	if g.status.By != "" {
		text = fmt.Sprintf("%s: %s by %s", g.Name(), strings.ToLower(string(g.status.Decision)), g.status.By)
	}
	return release.Summary(text)
}

// awaitPerson waits until somebody decides, the approval expires, or the sync is superseded: at once, since nothing that
// waits for a person is about to end by itself (D23).
func (s *sync) awaitPerson(ctx workflow.Context, gate *approval, in activities.WaveInput) error {
	if s.hearOrder() {
		return s.giveWay()
	}
	gate.waiting = true
	defer func() { gate.waiting = false }()
	render := release.ShortDigest(gate.status.Digest)
	s.wait(fmt.Sprintf("%s waits for an approval of render %s", gate.Name(), gate.status.Digest))
	expires := gate.Approval.Expires
	if expires > 0 {
		until := metav1.NewTime(workflow.Now(ctx).Add(expires).Truncate(time.Second))
		gate.status.ExpiresAt = &until
	}
	until := workflow.Now(ctx).Add(expires)
	err := callOnly(ctx, s.option(gate.Name()+": ask for an approval of render "+render, "approval-"+gateID(gate.PlannedWave), time.Minute),
		act.AnnounceApproval, activities.ApprovalInput{WaveInput: in, Approval: gate.status})
	if err != nil {
		return err
	}
	timing, stop := workflow.WithCancel(ctx)
	defer stop()
	expired := func() bool { return false }
	if expires > 0 && !gate.decided() {
		timer := workflow.NewTimerWithOptions(timing, max(until.Sub(workflow.Now(ctx)), time.Millisecond),
			workflow.TimerOptions{Summary: fmt.Sprintf("%s: the approval of render %s expires if nobody decides", gate.Name(), render)})
		expired = timer.IsReady
	}
	err = workflow.Await(ctx, func() bool { return gate.decided() || s.veto() != nil || expired() || s.superseding.Len() > 0 })
	switch veto := s.veto(); {
	case gate.decided():
		return nil
	case veto != nil:
		return s.refuse(ctx, veto)
	case err != nil:
		return err
	case s.hearOrder():
		return s.giveWay()
	}
	gate.settle(ctx, v1alpha1.Expired, "", "")
	return nil
}
