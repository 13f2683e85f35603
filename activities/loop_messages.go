package activities

import (
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
)

// ObserveInput is what the loop of a Release wants to know, and what it knows.
type ObserveInput struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID of the Release that the loop is for, empty on its first look.
	UID string `json:"uid,omitempty"`
	// First: the loop has no memory of its own yet, and wants that of status.
	First bool `json:"first,omitempty"`
	// Due: the time has come, or a person asked for a reconcile.
	Due bool `json:"due,omitempty"`
	// Whole: the sync before may have left a request in flight (D16).
	Whole bool `json:"whole,omitempty"`
	// Requests are the ids of sync requests that wait.
	Requests []string `json:"requests,omitempty"`
	// Retry: a sync failed and is to be tried again; RetryOf is the digest of its render.
	Retry   bool   `json:"retry,omitempty"`
	RetryOf string `json:"retryOf,omitempty"`
	// RetryAt is when the failed sync is to be tried again, zero when none is (D22).
	RetryAt time.Time `json:"retryAt,omitzero"`
	// SyncedSpec is the sum of the spec that the last sync of this loop began with.
	SyncedSpec string `json:"syncedSpec,omitempty"`
	// AnnotationID is the value of the request annotation that the loop has taken.
	AnnotationID string `json:"annotationID,omitempty"`
	// Running is the sync that the loop waits for.
	Running *RunningSync `json:"running,omitempty"`
	// Answers to requests that no sync has recorded.
	Answers []v1alpha1.HandledRequest `json:"answers,omitempty"`
}

// RunningSync is a sync that the loop waits for.
type RunningSync struct {
	RunID string `json:"runID"`
	// Awaited: the loop hears of its end from Temporal itself.
	Awaited bool `json:"awaited,omitempty"`
	// Spec and Digest are what it syncs, where the loop knows.
	Spec   string `json:"spec,omitempty"`
	Digest string `json:"digest,omitempty"`
}

// Observation is what Observe found, and what is to be done.
type Observation struct {
	Action release.Action `json:"action"`
	// Cause of the action, for people.
	Cause      string          `json:"cause,omitempty"`
	UID        string          `json:"uid,omitempty"`
	Generation int64           `json:"generation,omitempty"`
	Spec       string          `json:"spec,omitempty"`
	Cluster    string          `json:"cluster,omitempty"`
	Cadence    release.Cadence `json:"cadence,omitzero"`
	Manual     bool            `json:"manual,omitempty"`
	// Digest of the source's render, where it was looked at.
	Digest string `json:"digest,omitempty"`
	// NextAt is when the next periodic reconcile is due, where nothing is to be done now.
	NextAt time.Time `json:"nextAt,omitzero"`
	// AnnotationID is the value of the request annotation, and Request the request that it makes, if it is new.
	AnnotationID string           `json:"annotationID,omitempty"`
	Request      *release.Request `json:"request,omitempty"`
	// Handled are the requests that status knows to be answered: those that were asked for, and all on a first look.
	Handled []v1alpha1.HandledRequest `json:"handled,omitempty"`
	// Last is the last sync that status knows of.
	Last *Ended `json:"last,omitempty"`
	// Reborn: there is a Release, and it is another one under the same name.
	Reborn bool `json:"reborn,omitempty"`
	// OtherRun is a sync that runs and is not the loop's.
	OtherRun string `json:"otherRun,omitempty"`
	// RunEnded: the sync that the loop waits for has ended.
	RunEnded bool `json:"runEnded,omitempty"`
	// Searchable: Temporal knows convoy's search attributes.
	Searchable bool `json:"searchable,omitempty"`
	// Supersede says by what the sync that the loop waits for is out of date (D23); empty when it is not.
	Supersede string `json:"supersede,omitempty"`
}

// Ended is a sync as status has it.
type Ended struct {
	RunID   string `json:"runID,omitempty"`
	Result  string `json:"result"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	Digest  string `json:"digest,omitempty"`
	// Unreachable: its render failed because the source could not be read, so it is tried again (D1).
	Unreachable bool `json:"unreachable,omitempty"`
}

// LoopRef is what the loop tells the sync that it starts, for the record of its end.
type LoopRef struct {
	// Requests are the ids that this sync answers (D26).
	Requests []string `json:"requests,omitempty"`
	// Failures is how many syncs failed in a row before this one: the pause after it grows with them (D22).
	Failures int `json:"failures,omitempty"`
	// Retry: it is a retry, which runs no hook again that has succeeded (D25).
	Retry bool `json:"retry,omitempty"`
	// Cause of the sync, for people.
	Cause string `json:"cause,omitempty"`
	// Searchable: Temporal knows convoy's search attributes, as far as the loop knows.
	Searchable bool `json:"searchable,omitempty"`
}

// FinishInput is what FinishDeletion needs, and what it tells.
type FinishInput struct {
	Sync    SyncRef `json:"sync"`
	Deleted int     `json:"deleted,omitempty"`
	// Kept are objects that stay, with the reason, and Terminating those that finalizers hold.
	Kept        Named `json:"kept,omitzero"`
	Terminating Named `json:"terminating,omitzero"`
}
