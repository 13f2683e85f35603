package workflows

import (
	"context"
	"strings"
	"testing"
	"time"

	"convoy.dev/convoy/activities"
	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/testsuite"
)

// asking is a plan whose wave 2 waits for a person, and newAsking plays it: what is recorded of approvals is a line each.
func asking(expires time.Duration) activities.Prepared {
	p := plan()
	p.Waves[1].Approval = &activities.PlannedApproval{Expires: expires}
	return p
}

type askingStage struct {
	*stage
	announced, settled []activities.ApprovalInput
}

func newAsking(t *testing.T, p activities.Prepared) *askingStage {
	t.Helper()
	s := &askingStage{stage: newStage(t, p)}
	s.OnActivity(act.AnnounceApproval, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.ApprovalInput) error {
		s.announced = append(s.announced, in)
		return s.play("ask at " + release.GateName(in.Blocks, in.Final))
	})
	s.OnActivity(act.RecordApproval, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.ApprovalInput) error {
		s.settled = append(s.settled, in)
		return s.play(string(in.Approval.Decision) + " at " + release.GateName(in.Blocks, in.Final))
	})
	s.OnActivity(act.LeaveGate, mock.Anything, mock.Anything).Return(func(context.Context, activities.WaveInput) error { return s.play("leave") })
	return s
}

// says sends an update, and returns where its answer will be.
func (s *askingStage) says(update string, in ApprovalRequest) *said {
	answer := &said{}
	s.UpdateWorkflow(update, "", &testsuite.TestUpdateCallback{
		OnReject: func(err error) { answer.refused = err.Error() },
		OnAccept: func() { answer.accepted = true },
		OnComplete: func(result any, err error) {
			answer.done, answer.err = true, err
			if err == nil {
				answer.ApprovalAnswer = result.(ApprovalAnswer)
			}
		},
	}, in)
	return answer
}

type said struct {
	ApprovalAnswer
	accepted, done bool
	refused        string
	err            error
}

// later does something after a while.
func (s *askingStage) later(after time.Duration, do func()) { s.RegisterDelayedCallback(do, after) }

func alice() ApprovalRequest {
	return ApprovalRequest{Digest: "sha256:abc", By: "alice", Reason: "the figures look right"}
}

func wave(n int32) *int32 { return &n }

const (
	wave2 = "wave 2"
	begun = untilTheGate + ", ask at wave 2"
)

// ends runs the sync and requires its end and its calls.
func (s *askingStage) ends(reason, calls string) {
	s.t.Helper()
	require.Equal(s.t, reason, s.run(SyncInput{}))
	require.Equal(s.t, calls, strings.Join(s.calls, ", "))
}

func approvedIn(ask string) string {
	return strings.Replace(wholeSync, wave2, ask+"Approved at wave 2, wave 2", 1)
}

// D23 D33: a wave waits for a person, however long, and holds no activity meanwhile. Who approved is recorded before the
// wave begins.
func TestSyncWorkflow_approval_waits_for_a_person(t *testing.T) {
	s := newAsking(t, asking(0))
	began := s.Now()
	var answer *said
	s.later(72*time.Hour, func() { answer = s.says(UpdateApprove, alice()) })
	s.ends("Succeeded", approvedIn("ask at wave 2, "))
	require.WithinDuration(t, began.Add(72*time.Hour), s.Now(), time.Second)
	require.NoError(t, answer.err)
	require.Equal(t, ApprovalAnswer{
		Wave: 2, Decision: v1alpha1.Approved, By: "alice", Reason: "the figures look right", At: answer.At, Digest: "sha256:abc",
	}, answer.ApprovalAnswer)
	require.WithinDuration(t, began.Add(72*time.Hour), answer.At, time.Second)
	require.Equal(t, v1alpha1.ApprovalStatus{Digest: "sha256:abc"}, s.announced[0].Approval)
	require.Equal(t, "alice", s.settled[0].Approval.By)
	require.EqualValues(t, 2, s.settled[0].Blocks)
	require.False(t, s.recorded.Rejected)
}

// What an update cannot mean is refused in words, and the wait goes on.
func TestSyncWorkflow_approval_refuses_what_is_not_meant(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*ApprovalRequest)
		says   string
	}{
		"another digest":    {func(r *ApprovalRequest) { r.Digest = "sha256:def" }, "the word is for render sha256:def, and this sync is of sha256:abc"},
		"no digest":         {func(r *ApprovalRequest) { r.Digest = "" }, "digest is missing"},
		"nobody":            {func(r *ApprovalRequest) { r.By = " " }, `by is empty: name the person`},
		"a wave without":    {func(r *ApprovalRequest) { r.Wave = wave(-1) }, "no approval is asked for there; one is at: wave 2"},
		"the final gate":    {func(r *ApprovalRequest) { r.Final = true }, "no approval is asked for there; one is at: wave 2"},
		"two gates at once": {func(r *ApprovalRequest) { r.Final, r.Wave = true, wave(2) }, "name one of them"},
		"a long reason":     {func(r *ApprovalRequest) { r.Reason = strings.Repeat("x", 2000) }, "reason 2000: at most 200 and 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAsking(t, asking(0))
			request := alice()
			c.change(&request)
			var refused []*said
			s.later(time.Hour, func() {
				refused = append(refused, s.says(UpdateApprove, request), s.says(UpdateReject, request))
			})
			s.later(2*time.Hour, func() { s.says(UpdateApprove, alice()) })
			s.ends("Succeeded", approvedIn("ask at wave 2, "))
			for _, one := range refused {
				require.False(t, one.accepted)
				require.Contains(t, one.refused, c.says)
			}
		})
	}
	t.Run("no gate at all", func(t *testing.T) {
		s := newAsking(t, plan())
		var early, late *said
		s.on["prepare"] = func() { early = s.says(UpdateApprove, alice()) }
		s.on["dry run"] = func() { late = s.says(UpdateApprove, alice()) }
		s.ends("Succeeded", wholeSync)
		require.Contains(t, early.refused, "no plan yet")
		require.Contains(t, late.refused, "no gate of this sync asks for an approval")
	})
}

// A second word for the same gate changes nothing: approving answers with the first approval, rejecting is refused.
func TestSyncWorkflow_approval_holds_what_was_decided_first(t *testing.T) {
	s := newAsking(t, asking(0))
	bob := ApprovalRequest{Digest: "sha256:abc", Wave: wave(2), By: "bob"}
	var first, second, third *said
	s.later(time.Hour, func() { first = s.says(UpdateApprove, alice()) })
	s.on["wave 2"] = func() { second, third = s.says(UpdateApprove, bob), s.says(UpdateReject, bob) }
	s.ends("Succeeded", approvedIn("ask at wave 2, "))
	require.NoError(t, second.err)
	require.Equal(t, first.ApprovalAnswer, second.ApprovalAnswer)
	require.Contains(t, third.refused, "wave 2 was approved by alice at ")
	require.Contains(t, third.refused, "a decision does not change")
	require.Len(t, s.settled, 1)
}

// An approval may come as soon as the plan is made: then nobody is asked, and the health of the wave before still counts.
func TestSyncWorkflow_approval_may_come_early(t *testing.T) {
	p := asking(time.Hour)
	p.Waves[1].Strategy, p.Waves[1].After = v1alpha1.HealthExpression, -1
	p.Waves[1].Current, p.Waves[1].Failed = "true", "false"
	s := newAsking(t, p)
	s.unhealthy = 2
	s.on["dry run"] = func() { s.says(UpdateApprove, alice()) }
	s.ends("Succeeded", strings.Replace(wholeSync, wave2, "wave -1 healthy, Approved at wave 2, wave 2", 1))
	require.Empty(t, s.announced)
}

// D25: who has approved a render of the same Release before is not asked again: a retry needs no second approval.
func TestSyncWorkflow_approval_of_an_earlier_sync_holds(t *testing.T) {
	p := asking(0)
	p.Waves[1].Approval.Held = &v1alpha1.ApprovalStatus{Decision: v1alpha1.Approved, By: "alice", Digest: "sha256:abc"}
	s := newAsking(t, p)
	s.ends("Succeeded", wholeSync)
}

// The wait for a person does not count against the timeout of the health.
func TestSyncWorkflow_approval_is_no_part_of_the_timeout(t *testing.T) {
	p := asking(0)
	p.Waves[1].Strategy, p.Waves[1].After, p.Waves[1].Timeout = v1alpha1.HealthReady, -1, time.Minute
	s := newAsking(t, p)
	s.later(time.Hour, func() { s.says(UpdateApprove, alice()) })
	s.ends("Succeeded", strings.Replace(wholeSync, wave2, "wave -1 healthy, ask at wave 2, Approved at wave 2, wave 2", 1))
}

// D23: an approval that nobody gives expires; its time begins with the wait for it.
func TestSyncWorkflow_approval_expires(t *testing.T) {
	p := asking(24 * time.Hour)
	p.Waves[1].Strategy, p.Waves[1].After = v1alpha1.HealthReady, -1
	s := newAsking(t, p)
	s.unhealthy = 3 // days
	began := s.Now()
	var late *said
	s.on["record WaveTimeout"] = func() { late = s.says(UpdateApprove, alice()) }
	s.ends("WaveTimeout", untilTheGate+", wave -1 healthy, ask at wave 2, Expired at wave 2, record WaveTimeout")
	require.WithinDuration(t, began.Add(4*24*time.Hour), s.Now(), time.Minute)
	require.WithinDuration(t, s.Now(), s.announced[0].Approval.ExpiresAt.Time, time.Second)
	require.Equal(t, "nobody approved render abc at wave 2 within 24h0m0s; the next sync asks again", s.recorded.Message)
	require.Equal(t, int32(2), *s.recorded.FailedWave)
	require.Contains(t, late.refused, "the approval of wave 2 expired at ")
}

// D33: a rejection ends the sync like a cancelled one, and its record says that the loop is to leave the render alone.
func TestSyncWorkflow_approval_can_be_rejected(t *testing.T) {
	for name, c := range map[string]struct {
		when  string
		calls string
	}{
		"while the wave waits for it": {"", begun},
		"before its turn":             {"wave -1", untilTheGate},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAsking(t, asking(time.Hour))
			reject := func() { s.says(UpdateReject, alice()) }
			if c.when == "" {
				s.later(time.Minute, reject)
			} else {
				s.on[c.when] = reject
			}
			s.ends("Canceled", c.calls+", Rejected at wave 2, record Superseded")
			require.Equal(t, "rejected by alice at wave 2: the figures look right", s.recorded.Message)
			require.True(t, s.recorded.Rejected)
			require.Nil(t, s.recorded.FailedWave)
		})
	}
	for _, strategy := range []v1alpha1.HealthStrategy{v1alpha1.HealthReady, v1alpha1.HealthDelay} {
		t.Run("while the wave waits by "+string(strategy), func(t *testing.T) {
			p := gated(strategy, 0)
			p.Waves[1].Approval, p.Waves[1].Delay = &activities.PlannedApproval{}, 90*time.Hour
			s := newAsking(t, p)
			s.unhealthy = -1
			began := s.Now()
			s.later(time.Hour, func() { s.says(UpdateReject, alice()) })
			require.Equal(t, "Canceled", s.run(SyncInput{}))
			require.True(t, s.recorded.Rejected)
			require.WithinDuration(t, began.Add(time.Hour), s.Now(), time.Minute)
			require.NotContains(t, s.calls, wave2)
		})
	}
}

// D23: a sync that waits for a person gives way at once, and asks nobody when it was told before; one that is approved
// goes on.
func TestSyncWorkflow_D23_gives_way_while_it_waits_for_a_person(t *testing.T) {
	t.Run("while it waits", func(t *testing.T) {
		s := newAsking(t, asking(time.Hour))
		began := s.Now()
		s.later(time.Minute, func() { s.SignalWorkflow(SignalSupersede, Supersede{By: "render def"}) })
		s.gaveWay(began, time.Minute, begun)
		require.False(t, s.recorded.Rejected)
	})
	t.Run("before it waits", func(t *testing.T) {
		s := newAsking(t, asking(0))
		s.supersedes("wave -1")
		s.gaveWay(s.Now(), 0, untilTheGate)
	})
	t.Run("approved before", func(t *testing.T) {
		s := newAsking(t, asking(0))
		s.on["wave -1"] = func() {
			s.says(UpdateApprove, alice())
			s.SignalWorkflow(SignalSupersede, Supersede{By: "render def"})
		}
		s.ends("Succeeded", approvedIn(""))
	})
}

// D33: a cancelled wait is recorded like every other, and an approval that comes too late is refused.
func TestSyncWorkflow_approval_a_cancelled_wait(t *testing.T) {
	s := newAsking(t, asking(time.Hour))
	s.later(time.Minute, s.CancelWorkflow)
	var late *said
	s.on["record Superseded"] = func() { late = s.says(UpdateApprove, alice()) }
	s.ends("Canceled", begun+", record Superseded")
	require.Contains(t, late.refused, "the sync ends: it never comes to wave 2")
}

// SPEC 4: the query names the gate, the digest and who decided.
func TestSyncWorkflow_approval_is_seen_in_the_query(t *testing.T) {
	s := newAsking(t, asking(time.Hour))
	status := func() (status SyncStatus) {
		value, err := s.QueryWorkflow("status")
		require.NoError(t, err)
		require.NoError(t, value.Get(&status))
		return status
	}
	var during SyncStatus
	s.later(time.Minute, func() { during = status(); s.says(UpdateApprove, alice()) })
	s.ends("Succeeded", approvedIn("ask at wave 2, "))
	require.Equal(t, "wave 2 waits for an approval of render sha256:abc", during.WaitingFor)
	require.Len(t, during.Approvals, 1)
	require.Equal(t, "wave 2", during.Approvals[0].Gate)
	require.True(t, during.Approvals[0].Waiting)
	require.Equal(t, "sha256:abc", during.Approvals[0].Digest)
	after := status()
	require.Equal(t, v1alpha1.Approved, after.Approvals[0].Decision)
	require.False(t, after.Approvals[0].Waiting)
}

// D24: the final gate stands behind the last wave and in front of the prune, and waits for the same.
func TestSyncWorkflow_final_gate(t *testing.T) {
	final := func(p activities.Prepared) activities.Prepared {
		p.FinalGate = &activities.PlannedWave{
			Number: 2, After: 2, Final: true, Strategy: v1alpha1.HealthReady, Timeout: time.Hour, Approval: &activities.PlannedApproval{Expires: time.Hour},
		}
		return p
	}
	request := alice()
	request.Final = true
	t.Run("passed", func(t *testing.T) {
		s := newAsking(t, final(plan()))
		s.later(time.Minute, func() { s.says(UpdateApprove, request) })
		s.ends("Succeeded", strings.Replace(wholeSync, "prune", "wave 2 healthy, ask at the final gate, Approved at the final gate, leave, prune", 1))
	})
	t.Run("not healthy in time", func(t *testing.T) {
		s := newAsking(t, final(plan()))
		s.unhealthy = -1
		s.ends("WaveTimeout", untilTheGate+", wave 2, record WaveTimeout")
		require.Nil(t, s.recorded.FailedWave, "the wave is applied")
		require.Contains(t, s.recorded.Message, "the final gate waited for wave 2 longer")
	})
	t.Run("rejected", func(t *testing.T) {
		s := newAsking(t, final(plan()))
		s.later(time.Minute, func() { s.says(UpdateReject, request) })
		s.ends("Canceled", untilTheGate+", wave 2, wave 2 healthy, ask at the final gate, Rejected at the final gate, record Superseded")
		require.Contains(t, s.recorded.Message, "rejected by alice at the final gate")
	})
	t.Run("of two gates the one that waits is meant", func(t *testing.T) {
		s := newAsking(t, final(asking(0)))
		var early *said
		s.on["dry run"] = func() { early = s.says(UpdateApprove, alice()) }
		s.later(time.Minute, func() { s.says(UpdateApprove, alice()) })
		s.later(2*time.Minute, func() { s.says(UpdateApprove, alice()) })
		s.ends("Succeeded", strings.Replace(approvedIn("ask at wave 2, "), "prune", "wave 2 healthy, ask at the final gate, Approved at the final gate, leave, prune", 1))
		require.Contains(t, early.refused, "name the wave (or final) that is meant, of: wave 2, the final gate")
	})
	t.Run("of a render without objects", func(t *testing.T) {
		p := final(plan())
		p.Waves, p.Objects = nil, 0
		p.FinalGate.Number, p.FinalGate.After, p.FinalGate.Strategy = 0, 0, ""
		s := newAsking(t, p)
		s.later(time.Minute, func() { s.says(UpdateApprove, alice()) })
		s.ends("Succeeded", "prepare, dry run, store, preSync migrate 1, ask at the final gate, Approved at the final gate, leave, prune, inventory, postSync notify 1, record Succeeded")
	})
}

// What cannot be announced or recorded ends the sync.
func TestSyncWorkflow_approval_that_cannot_be_shown(t *testing.T) {
	for call, calls := range map[string]string{
		"ask at wave 2":      begun,
		"Approved at wave 2": begun + ", Approved at wave 2",
	} {
		s := newAsking(t, asking(0))
		s.fail[call] = failure(release.DeployFailed)
		s.later(time.Minute, func() { s.says(UpdateApprove, alice()) })
		s.ends("DeployFailed", calls+", record DeployFailed")
	}
}

// D23: a rejection ends the sync at its next wait, also where it came before its turn: no further wave begins.
func TestSyncWorkflow_approval_rejected_early_ends_the_sync_at_its_next_wait(t *testing.T) {
	p := asking(0)
	p.Waves = append(p.Waves[:1:1], activities.PlannedWave{Number: 1, Objects: 1, Strategy: v1alpha1.HealthDelay, After: -1, Delay: time.Hour}, p.Waves[1])
	s := newAsking(t, p)
	s.later(time.Minute, func() { s.says(UpdateReject, alice()) })
	s.ends("Canceled", untilTheGate+", wave 1 delayed, Rejected at wave 2, record Superseded")
	require.Equal(t, "rejected by alice at wave 2: the figures look right", s.recorded.Message)
	require.True(t, s.recorded.Rejected)
	require.Empty(t, s.recorded.Decisions)
}

// What was decided for a gate that the sync never came to is kept by the record of its end: the next sync of the same
// render asks nobody again.
func TestSyncWorkflow_approval_given_early_outlives_the_sync(t *testing.T) {
	p := asking(0)
	p.Waves = append(p.Waves[:1:1], activities.PlannedWave{Number: 1, Objects: 1, Strategy: v1alpha1.HealthReady, After: -1, Timeout: time.Hour}, p.Waves[1])
	s := newAsking(t, p)
	s.unhealthy = -1
	s.later(time.Minute, func() { s.says(UpdateApprove, alice()) })
	require.Equal(t, "WaveTimeout", s.run(SyncInput{}))
	require.Len(t, s.recorded.Decisions, 1)
	require.EqualValues(t, 2, s.recorded.Decisions[0].Blocks)
	require.Equal(t, v1alpha1.Approved, s.recorded.Decisions[0].Approval.Decision)
	require.Equal(t, "alice", s.recorded.Decisions[0].Approval.By)
}
