package release

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"convoy.dev/convoy/api/v1alpha1"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Cadence is when a Release is looked at.
type Cadence struct {
	Interval time.Duration `json:"interval"`
	// RetryInitial and RetryMax bound the backoff after failed syncs (D22).
	RetryInitial time.Duration `json:"retryInitial"`
	RetryMax     time.Duration `json:"retryMax"`
}

// The cadence of a Release that does not say (SPEC 4).
const (
	defaultInterval     = 5 * time.Minute
	defaultResync       = time.Hour
	defaultRetryInitial = 10 * time.Second
	defaultRetryMax     = 5 * time.Minute
)

// CadenceOf reads the cadence of a Release.
func CadenceOf(spec v1alpha1.ReleaseSpec) Cadence {
	retry := spec.SyncPolicy.Retry
	return Cadence{
		Interval:     durationOr(spec.Interval, defaultInterval),
		RetryInitial: durationOr(retry.InitialInterval, defaultRetryInitial),
		RetryMax:     durationOr(retry.MaxInterval, defaultRetryMax),
	}
}

// ResyncInterval of a Release: after what time a whole sync runs as a backstop (D30).
func ResyncInterval(spec v1alpha1.ReleaseSpec) time.Duration {
	return durationOr(spec.SyncPolicy.ResyncInterval, defaultResync)
}

func durationOr(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil || d.Duration <= 0 {
		return otherwise
	}
	return d.Duration
}

// Spread shortens a duration by up to a tenth, by a share that belongs to the Release, so that many Releases do not
// wake together. The same Release always gets the same share: replays of a workflow agree.
func Spread(uid string, d time.Duration) time.Duration {
	sum := sha256.Sum256([]byte(uid))
	share := float64(binary.BigEndian.Uint32(sum[:4])) / (1 << 32)
	return d - time.Duration(share*float64(d)/10)
}

// Next is when a Release is looked at again by itself, after a pass or a sync that did not fail, or failed in a way
// that a retry does not help (failures is 0), or failed that many times in a row (D22). A retry never waits longer than
// the interval.
func (c Cadence) Next(uid string, now time.Time, failures int) time.Time {
	wait := Spread(uid, c.Interval)
	if failures > 0 {
		wait = min(wait, Spread(uid, c.backoff(failures)))
	}
	return now.Add(wait)
}

func (c Cadence) backoff(failures int) time.Duration {
	wait := c.RetryInitial
	for range failures - 1 {
		if wait *= 2; wait >= c.RetryMax {
			return c.RetryMax
		}
	}
	return min(wait, c.RetryMax)
}

// Retries reports whether a sync that ended with the reason is tried again with backoff (S7, D1, D22). unreachable says
// that a RenderFailed is due to a source that could not be reached.
func Retries(reason Reason, unreachable bool) bool {
	switch reason {
	case DeployFailed, PruneFailed, HookFailed:
		return true
	case RenderFailed:
		return unreachable
	}
	return false
}

// SpecSum is a sum over what a sync of a Release depends on. Interval, suspend, retries, the history's length and what
// happens at its deletion are no part of it: changing only those neither starts a sync nor supersedes one (D23).
func SpecSum(spec v1alpha1.ReleaseSpec) string {
	spec.Interval, spec.Suspend, spec.RevisionHistoryLimit, spec.DeletionPolicy = nil, false, nil, ""
	spec.SyncPolicy.Retry, spec.SyncPolicy.ResyncInterval, spec.SyncPolicy.Mode = v1alpha1.RetryPolicy{}, nil, ""
	raw, err := json.Marshal(spec)
	if err != nil {
		panic(fmt.Sprintf("spec of a Release: %v", err)) // plain data: cannot happen
	}
	return SumOf(string(raw))
}

// SumOf is a short sum of a text, to tell whether it is the same as before.
func SumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}
