package k8s

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"convoy.dev/convoy/internal/release"
)

const (
	defaultRetryFor    = 40 * time.Second // D22
	defaultDeletingFor = 2 * time.Minute  // D14
	// graceFor is how long the cluster may go on denying a kind whose definition this render brings (D11).
	graceFor = 10 * time.Second

	shortestBackoff = 200 * time.Millisecond
	longestBackoff  = 5 * time.Second
)

// SessionOptions of one step.
type SessionOptions struct {
	// RetryFor is the total time for which accidents are retried inside the step. 0 means 40s (D22), negative none. A
	// cluster that is silent gets little of it.
	RetryFor time.Duration
	// DeletingFor is how long Apply waits for an object that is being deleted. 0 means 2 minutes (D14).
	DeletingFor time.Duration
	// RenderCRDs maps the kinds whose CustomResourceDefinition is part of this render to that definition's name
	// (D11): until 10s after the first such answer, Apply takes "unknown kind" and "not declared in schema" for these
	// kinds as accidents. DryRun does not: there they are the caller's to excuse (D8).
	RenderCRDs map[schema.GroupKind]string
}

// Session is one step's use of a cluster: a budget of time for retrying accidents, shared by all its calls, and what
// this sync has defined. It is safe for concurrent use.
type Session struct {
	cluster *Cluster
	options SessionOptions
	// patient: the session tries for all of its time, so its end without an answer says something about the cluster.
	patient bool

	mu sync.Mutex
	// troubled counts calls that are retrying now; since is when the first of them began, spent what earlier ones
	// took. So calls side by side spend the budget once.
	troubled int
	since    time.Time
	spent    time.Duration
	// denied is when a kind of RenderCRDs was first denied.
	denied map[schema.GroupKind]time.Time
	// defined are CustomResourceDefinitions that were applied in this session and not awaited yet.
	defined map[string]bool
}

// Session begins a step on this cluster.
func (c *Cluster) Session(options SessionOptions) *Session {
	if options.RetryFor == 0 {
		options.RetryFor = defaultRetryFor
	}
	if options.DeletingFor == 0 {
		options.DeletingFor = defaultDeletingFor
	}
	patient := !c.silence.lasts()
	if !patient {
		options.RetryFor = min(options.RetryFor, impatience)
	}
	return &Session{
		cluster: c,
		options: options,
		patient: patient,
		denied:  map[schema.GroupKind]time.Time{},
		defined: map[string]bool{},
	}
}

// Resolve is Cluster.Resolve with accidents retried within the session's budget (D22).
func (s *Session) Resolve(ctx context.Context, gvk schema.GroupVersionKind) (Mapping, error) {
	var mapping Mapping
	err := s.retry(ctx, nil, func(ctx context.Context) (err error) {
		mapping, err = s.cluster.Resolve(ctx, gvk)
		return err
	})
	return mapping, err
}

// Address is Cluster.Address.
func (s *Session) Address() string { return s.cluster.Address() }

// Silent reports whether the cluster answers nothing, as far as is known.
func (s *Session) Silent() bool { return s.cluster.silence.lasts() }

// Identity is Cluster.Identity with accidents retried within the session's budget (D22).
func (s *Session) Identity(ctx context.Context) (string, error) {
	var identity string
	err := s.retry(ctx, nil, func(ctx context.Context) (err error) {
		identity, err = s.cluster.Identity(ctx)
		return err
	})
	return identity, err
}

// answered is a failure on its way to the retry loop, with the wait that the API server asked for and its causes, whose
// words may hold values (D10): they go no further than the session.
type answered struct {
	failure    *release.Failure
	retryAfter time.Duration
	causes     []metav1.StatusCause
}

// causesOf are the causes of an answer that is no success.
func causesOf(err error) []metav1.StatusCause {
	var asked *answered
	if errors.As(err, &asked) {
		return asked.causes
	}
	return nil
}

func (a *answered) Error() string { return a.failure.Error() }
func (a *answered) Unwrap() error { return a.failure }

// asFailure finds the failure in an error; nil when it is another error (guard, context, programming).
func asFailure(err error) *release.Failure {
	var failure *release.Failure
	if errors.As(err, &failure) {
		return failure
	}
	return nil
}

// retry calls try until it ends in something else than an accident, or the session's budget is spent. excused makes
// further failures retryable; nil excuses none. The context of a try bounds its requests by what is left of the budget,
// so that an API server that hangs is noticed in time too. An Uncertain try stays uncertain whatever came after it.
func (s *Session) retry(ctx context.Context, excused func(*release.Failure) bool, try func(context.Context) error) error {
	var began time.Time
	uncertain := false
	for n := 0; ; n++ {
		start := time.Now()
		err := try(withLimit(ctx, s.requestLimit()))
		failure := asFailure(err)
		if failure == nil {
			s.recovered(began)
			return err
		}
		uncertain = uncertain || failure.Uncertain
		failure.Uncertain = uncertain
		if failure.Class != release.Accident && (excused == nil || !excused(failure)) {
			s.recovered(began)
			return failure
		}
		if began.IsZero() {
			began = start
			s.stumbled(start)
		}
		if waitErr := s.pause(ctx, n, err); waitErr != nil {
			s.recovered(began)
			if !errors.Is(waitErr, errBudgetSpent) {
				return waitErr
			}
			if s.patient && failure.Code == 0 && failure.Uncertain {
				s.cluster.silence.began()
			}
			return tried(failure, time.Since(began))
		}
	}
}

// tried says how long an accident was retried.
func tried(failure *release.Failure, took time.Duration) *release.Failure {
	if failure.Class == release.Accident && took >= time.Second {
		failure.Message = fmt.Sprintf("%s (tried for %s)", failure.Message, took.Round(time.Second))
	}
	return failure
}

var errBudgetSpent = errors.New("no time is left for further tries")

// pause waits before try n+1, or says that no budget is left for the wait that is due.
func (s *Session) pause(ctx context.Context, n int, err error) error {
	wait := backoff(n)
	var asked *answered
	if errors.As(err, &asked) {
		wait = max(wait, asked.retryAfter)
	}
	if wait > s.left() {
		return errBudgetSpent
	}
	return sleep(ctx, wait)
}

// backoff grows from 200ms to 5s, with a jitter of a quarter.
func backoff(n int) time.Duration {
	wait := longestBackoff
	if n < 5 {
		wait = min(shortestBackoff<<n, longestBackoff)
	}
	return time.Duration(float64(wait) * (0.75 + rand.Float64()/2))
}

// sleep waits, or ends early with the context's error.
func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the target cluster: %w", context.Cause(ctx))
	}
}

func (s *Session) stumbled(start time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.troubled == 0 {
		s.since = start
	}
	s.troubled++
}

func (s *Session) recovered(began time.Time) {
	if began.IsZero() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.troubled--
	if s.troubled == 0 {
		s.spent += time.Since(s.since)
	}
}

// left is what remains of the budget.
func (s *Session) left() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.options.RetryFor - s.spent
	if s.troubled > 0 {
		left -= time.Since(s.since)
	}
	return left
}

// requestLimit bounds one request: by what is left of the budget, but never so that a slow answer has no chance.
func (s *Session) requestLimit() time.Duration {
	if s.options.RetryFor < 0 {
		return requestTimeout
	}
	return min(requestTimeout, max(s.left(), shortestTimeout))
}

// request sends r about ref and returns the answer when its code is a success, else the classified failure.
func (s *Session) request(ctx context.Context, ref release.ObjectRef, document []byte, r request) (answer, error) {
	reply, err := s.cluster.send(ctx, r)
	if err != nil {
		return answer{}, err
	}
	if reply.code >= 200 && reply.code < 300 {
		return reply, nil
	}
	refused := &answered{failure: classify(ref, document, reply), retryAfter: reply.retryAfter()}
	if status := readStatus(reply.body); status != nil && status.Details != nil {
		refused.causes = status.Details.Causes
	}
	return reply, refused
}
