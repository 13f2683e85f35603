package release

import "fmt"

// Reason is why a Release is not applied: the reason of the condition Applied, and the type of the application error
// of a failed SyncWorkflow (SPEC 4).
type Reason string

// The reasons. They are written into status and workflow histories: never rename one.
const (
	Succeeded      Reason = "Succeeded"
	Progressing    Reason = "Progressing"
	Unappliable    Reason = "Unappliable"
	DeployFailed   Reason = "DeployFailed"
	PruneFailed    Reason = "PruneFailed"
	RenderFailed   Reason = "RenderFailed"
	HookFailed     Reason = "HookFailed"
	WaitingForWave Reason = "WaitingForWave"
	WaveTimeout    Reason = "WaveTimeout"
	Superseded     Reason = "Superseded"
)

// Problem is an error with the reason that it gives a Release. Its message is meant for people: it names the object,
// the place and the remedy, and holds no value of a Secret (D10).
type Problem struct {
	Reason  Reason
	Message string
}

// Error is the message.
func (p *Problem) Error() string { return p.Message }

// Problemf makes a Problem.
func Problemf(reason Reason, format string, args ...any) *Problem {
	return &Problem{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
