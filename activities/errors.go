package activities

import (
	"context"
	"errors"
	"strings"
	"time"

	"convoy.dev/convoy/internal/release"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
)

// The types of application errors that are no reasons of a Release: the step is tried again, or nothing was begun.
const (
	// Waiting: the step looked, is not done, and gives its slot back. Benign, retried.
	Waiting = "Waiting"
	// Interrupted: the worker stops, was paused, or lost its lease. Retried elsewhere.
	Interrupted = "Interrupted"
	// Refused: the sync may not begin at all, and the Release's status is not its to write.
	Refused = "Refused"
	// Fenced: another sync of the Release has begun; this one writes nothing more.
	Fenced = "Fenced"
)

// errFenced says that another sync has begun (D16, D35).
var errFenced = errors.New("another sync of this Release has begun")

// waitError gives the slot back and asks to be run again after a while.
type waitError struct {
	message string
	after   time.Duration
}

func (w *waitError) Error() string { return w.message }

// refusal is an error of a sync that may not begin.
type refusal struct{ message string }

func (r *refusal) Error() string { return r.message }

// perform runs one step under a lease and converts its error: once, as the last statement, since an application error
// that is wrapped afterwards arrives as another type and is retried. fallback is the reason of errors that carry none.
// A result of a failed step is lost; what the workflow needs of it travels in details.
func perform[T any](ctx context.Context, a *Activities, step string, fallback release.Reason,
	do func(context.Context, *lease) (T, error), details ...any,
) (T, error) {
	var result T
	ctx, leave := a.withShare(ctx)
	defer leave()
	err := a.underLease(ctx, step, func(ctx context.Context, l *lease) error {
		var err error
		result, err = do(ctx, l)
		return err
	})
	if err != nil {
		var none T
		return none, a.convert(ctx, err, fallback, details)
	}
	return result, nil
}

// convert makes the one application error that crosses the boundary.
func (a *Activities) convert(ctx context.Context, err error, fallback release.Reason, details []any) error {
	var problem *release.Problem
	var wait *waitError
	var refused *refusal
	switch {
	case temporal.IsCanceledError(err):
		return err
	case errors.As(err, &wait):
		return temporal.NewApplicationErrorWithOptions(wait.message, Waiting, temporal.ApplicationErrorOptions{
			NextRetryDelay: wait.after, Category: temporal.ApplicationErrorCategoryBenign,
		})
	case interrupted(ctx, err):
		return temporal.NewApplicationErrorWithOptions(err.Error(), Interrupted, temporal.ApplicationErrorOptions{
			NextRetryDelay: 100 * time.Millisecond, Category: temporal.ApplicationErrorCategoryBenign, Details: details,
		})
	case errors.As(err, &refused):
		return temporal.NewNonRetryableApplicationError(refused.message, Refused, nil, details...)
	case errors.Is(err, errFenced):
		return temporal.NewNonRetryableApplicationError(err.Error(), Fenced, nil, details...)
	case errors.As(err, &problem):
		return temporal.NewNonRetryableApplicationError(problem.Message, string(problem.Reason), nil, details...)
	}
	return temporal.NewNonRetryableApplicationError(shorten(err.Error()), string(fallback), nil, details...)
}

// interrupted reports whether the step ended for a cause that is no fault of the Release.
func interrupted(ctx context.Context, err error) bool {
	for _, cause := range []error{ErrLeaseLost, errWorkerStopping, activity.ErrActivityPaused, activity.ErrActivityReset} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return ctx.Err() != nil
}

// messageLimit keeps a failure below the 4 KiB at which the server cuts it.
const messageLimit = 3800

// shorten cuts a message to what the server keeps.
func shorten(message string) string {
	if len(message) <= messageLimit {
		return message
	}
	return strings.ToValidUTF8(message[:messageLimit], "") + "…"
}
