package control

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"convoy.dev/convoy/internal/release"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// retryFor is how long a request is tried again while the control cluster is out of reach (D22).
const retryFor = 40 * time.Second

// retry sends a request until the control cluster has answered it, one way or the other. A request whose answer was
// lost may have taken effect: then the next try meets its own write as a conflict, and the caller reads again.
func retry(ctx context.Context, request func() error) error {
	until := time.Now().Add(retryFor)
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := request()
		wait := pause*3/4 + rand.N(pause/2) // with a jitter of a quarter, as internal/k8s has it
		if err == nil || !unanswered(err) || ctx.Err() != nil || release.CheckGuard(ctx) != nil || time.Now().Add(wait).After(until) {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}

// unanswered reports whether an error says nothing about the request itself.
func unanswered(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
			apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err)
	}
	return utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) ||
		utilnet.IsTimeout(err) || utilnet.IsHTTP2ConnectionLost(err)
}
