package activities

import (
	"encoding/json"
	"slices"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"
)

// These types travel through workflow histories. Fields are only ever added, and none holds a part of a manifest.

// SyncRef is what every step of a sync needs to know: whose sync, which render, and its fence (D16).
type SyncRef struct {
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	// Spec is a sum over what the sync depends on: release.SpecSum.
	Spec string `json:"spec,omitempty"`
	// Fence is the number that this sync may write under.
	Fence    int64  `json:"fence"`
	Digest   string `json:"digest,omitempty"`
	Revision string `json:"revision,omitempty"`
	// Stored: the render comes from the render store, not from the source.
	Stored bool `json:"stored,omitempty"`
	// Deleting: the Release is being deleted, and its render counts as empty.
	Deleting bool `json:"deleting,omitempty"`
	// Unreachable: the render failed because the source could not be read, so it is tried again (D1).
	Unreachable bool `json:"unreachable,omitempty"`
}

// PrepareInput asks for a sync.
type PrepareInput struct {
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	Force       bool   `json:"force,omitempty"`
	RequestedBy string `json:"requestedBy,omitempty"`
	// Digest of a stored render to sync instead of the source.
	Digest string `json:"digest,omitempty"`
	// Retry: a person's request that failed is tried again; hooks that have succeeded since do not run again (D25).
	Retry bool `json:"retry,omitempty"`
	// Cause of the sync, for people.
	Cause string `json:"cause,omitempty"`
}

// Prepared is the plan of a sync.
type Prepared struct {
	Sync    SyncRef `json:"sync"`
	Cluster string  `json:"cluster,omitempty"` // name of the Cluster, empty for the control cluster
	Objects int     `json:"objects"`
	// Orphans is how many records of the inventory the render does not hold: with none there is nothing to prune.
	Orphans int `json:"orphans,omitempty"`
	// OrphanNames names them, with the prune off: a WriteInventory whose first attempt wrote and died finds nothing
	// that leaves the inventory any more (D21).
	OrphanNames Named `json:"orphanNames,omitzero"`
	// Pinned: spec.pin holds the Release at this render.
	Pinned bool `json:"pinned,omitempty"`
	// Unsure: an attempt before this one may have left a request in flight (D16).
	Unsure bool `json:"unsure,omitempty"`
	// Waves in the order of application.
	Waves []PlannedWave `json:"waves,omitempty"`
	// FinalGate stands behind the last wave; nil when there is none.
	FinalGate *PlannedWave         `json:"finalGate,omitempty"`
	Prune     v1alpha1.PrunePolicy `json:"prune,omitzero"`
	PreSync   []PlannedHook        `json:"preSync,omitempty"`
	PostSync  []PlannedHook        `json:"postSync,omitempty"`
	// HasStore: the worker has a render store.
	HasStore bool `json:"hasStore,omitempty"`
	// Searchable: Temporal knows convoy's search attributes. StuckAfter is how long a gate may wait before its sync
	// counts as stuck.
	Searchable bool          `json:"searchable,omitempty"`
	StuckAfter time.Duration `json:"stuckAfter,omitempty"`
}

// PlannedWave is one wave with objects, and what it waits for.
type PlannedWave struct {
	Number  int32 `json:"wave"`
	Objects int   `json:"objects"`
	// Strategy is Ready, Delay, Expression or empty.
	Strategy v1alpha1.HealthStrategy `json:"strategy,omitempty"`
	// After is the number of the wave before, that the strategy is about.
	After   int32         `json:"after,omitempty"`
	Delay   time.Duration `json:"delay,omitempty"`
	Timeout time.Duration `json:"timeout,omitempty"`
	// Current and Failed are the expressions of the strategy Expression.
	Current string `json:"current,omitempty"`
	Failed  string `json:"failed,omitempty"`
	// Approval is the person's word that is waited for once the strategy is satisfied; nil when none is.
	Approval *PlannedApproval `json:"approval,omitempty"`
	// Final: it is no wave but the gate behind the last one, whose number it has.
	Final bool `json:"final,omitempty"`
}

// PlannedApproval is an approval that a gate waits for.
type PlannedApproval struct {
	// Expires ends the wait; 0: it goes on.
	Expires time.Duration `json:"expires,omitempty"`
	// Held is the approval that was given for this render in an earlier sync of the same Release: nobody is asked again.
	Held *v1alpha1.ApprovalStatus `json:"held,omitempty"`
}

// Name names the gate in a sentence.
func (w PlannedWave) Name() string { return release.GateName(w.Number, w.Final) }

// PlannedHook is one hook that is to run in this sync.
type PlannedHook struct {
	Name string `json:"name"`
	// Type is empty in the plans of earlier versions, which had only Jobs.
	Type       release.HookType `json:"type,omitempty"`
	Definition string           `json:"definition"`
	Timeout    time.Duration    `json:"timeout"`
	Retries    int32            `json:"retries,omitempty"`
}

// Named is a list of object references cut to 20, and how many there are (D35).
type Named struct {
	Objects []string `json:"objects,omitempty"`
	Total   int      `json:"total,omitempty"`
}

// add appends a name while the list has room, and counts it.
func (n *Named) add(name string) {
	n.Total++
	if len(n.Objects) < listLimit {
		n.Objects = append(n.Objects, name)
	}
}

// WithHeld is a list of objects that finalizers hold, and those of another one that it does not name yet (D18).
func (n Named) WithHeld(more Named) Named {
	named := map[release.ObjectRef]bool{}
	for _, entry := range n.Objects {
		held, _ := release.ParseHeld(entry)
		named[held.Ref] = true
	}
	out := Named{Objects: slices.Clone(n.Objects), Total: n.Total}
	for _, entry := range more.Objects {
		if held, _ := release.ParseHeld(entry); !named[held.Ref] {
			out.add(entry)
		}
	}
	return out
}

// listLimit bounds the lists in status and results (D35).
const listLimit = 20

// DryRunResult says what the dry run found (S5).
type DryRunResult struct {
	Objects    int   `json:"objects"`
	Changes    int   `json:"changes"`
	Unverified Named `json:"unverified,omitzero"`
}

// WaveInput names a wave of a sync.
type WaveInput struct {
	Sync SyncRef `json:"sync"`
	Wave int32   `json:"wave"`
	// Blocks is the wave that waits for this one (AwaitWave).
	Blocks int32 `json:"blocks,omitempty"`
	// Final: it is the final gate that waits, and Blocks is the last wave, where status shows it.
	Final bool `json:"final,omitempty"`
	// Current and Failed are the expressions that judge the wave, where it is not kstatus.
	Current string `json:"current,omitempty"`
	Failed  string `json:"failed,omitempty"`
}

// gate names what waits.
func (w WaveInput) gate() string { return release.GateName(w.Blocks, w.Final) }

// ApplyWaveResult says what was applied.
type ApplyWaveResult struct {
	Applied int `json:"applied"`
	Changed int `json:"changed"`
	// Unsure: an earlier attempt at the wave may have left a request in flight (D16).
	Unsure bool `json:"unsure,omitempty"`
}

// HookInput runs one try of one hook.
type HookInput struct {
	Sync  SyncRef     `json:"sync"`
	Phase string      `json:"phase"`
	Hook  PlannedHook `json:"hook"`
	Try   int32       `json:"try"`
}

// HookCall is what an http hook without a body sends and what a workflow hook gets, as JSON: both are promised to
// programs of other people.
type HookCall struct {
	Release     HookRelease `json:"release"`
	Cluster     string      `json:"cluster"` // name of the Cluster, empty for the control cluster
	Phase       string      `json:"phase"`   // preSync or postSync
	Hook        string      `json:"hook"`
	Digest      string      `json:"digest"`
	Revision    string      `json:"revision"`
	RequestedBy string      `json:"requestedBy"` // who asked for the sync, empty when nobody did
	WorkflowID  string      `json:"workflowID"`  // of the sync
	RunID       string      `json:"runID"`       // of the sync
	Try         int32       `json:"try"`         // from 1
	// Input is what the hook says beside, an object; workflow hooks only.
	Input json.RawMessage `json:"input,omitempty"`
}

// HookRelease names a Release in a HookCall.
type HookRelease struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// HookStart is the workflow that a try of a workflow hook runs.
type HookStart struct {
	WorkflowID string   `json:"workflowID"`
	Type       string   `json:"type"`
	TaskQueue  string   `json:"taskQueue,omitempty"` // empty: the one of the sync
	Call       HookCall `json:"call"`
}

// HookOutcome is the end of a try of a workflow hook.
type HookOutcome struct {
	HookInput
	StartedAt time.Time `json:"startedAt"`
	// Failed and Message say what became of it.
	Failed  bool   `json:"failed,omitempty"`
	Message string `json:"message,omitempty"`
}

// PruneInput is what PruneOrphans needs.
type PruneInput struct {
	Sync   SyncRef              `json:"sync"`
	Policy v1alpha1.PrunePolicy `json:"policy"`
}

// PruneResult says what became of the orphans.
type PruneResult struct {
	Deleted int `json:"deleted"`
	Absent  int `json:"absent,omitempty"`
	// Kept are orphans that stay: protected, moved to another Release, or made anew by somebody else.
	Kept        Named `json:"kept,omitzero"`
	Terminating Named `json:"terminating,omitzero"`
}

// InventoryInput is what WriteInventory needs.
type InventoryInput struct {
	Sync SyncRef `json:"sync"`
	// Recheck: records that leave the inventory stay pending, so that the next sync looks at them once more (D16).
	Recheck bool `json:"recheck,omitempty"`
}

// InventoryResult says what the exact inventory holds.
type InventoryResult struct {
	Objects int `json:"objects"`
	// Left are records that left the inventory with it.
	Left Named `json:"left,omitzero"`
	// Terminating are objects that an earlier sync pruned and that finalizers hold to this day (D18).
	Terminating Named `json:"terminating,omitzero"`
}

// Outcome is the end of a sync, for its record.
type Outcome struct {
	Sync      SyncRef `json:"sync"`
	Reason    string  `json:"reason"`
	Message   string  `json:"message,omitempty"`
	Cancelled bool    `json:"cancelled,omitempty"`
	// DryRan, Pruned: the step was reached, so its lists are news.
	DryRan      bool  `json:"dryRan,omitempty"`
	Unverified  Named `json:"unverified,omitzero"`
	Exact       bool  `json:"exact,omitempty"`
	Orphaned    Named `json:"orphaned,omitzero"`
	Terminating Named `json:"terminating,omitzero"`
	// Decisions are approvals and rejections that came before the sync was at their gate, and that its end keeps.
	Decisions []ApprovalInput `json:"decisions,omitempty"`
	// Rejected: a person rejected the render, so the loop leaves it alone.
	Rejected bool `json:"rejected,omitempty"`
	// FailedWave is the wave that failed or was left, nil when none was.
	FailedWave *int32 `json:"failedWave,omitempty"`
	// Loop is what the loop of the Release wants recorded; nil for a sync that it did not start.
	Loop *LoopRef `json:"loop,omitempty"`
	// ParentRunID is the run of the loop that started the sync.
	ParentRunID string `json:"parentRunID,omitempty"`
}

// Progress is what a heartbeat records: the whole of it each time, for display and for the next attempt.
type Progress struct {
	Step   string `json:"step"`
	Wave   *int32 `json:"wave,omitempty"`
	Done   int    `json:"done"`
	Total  int    `json:"total"`
	Object string `json:"object,omitempty"`
	// Job is the uid of the hook's Job, once it was created.
	Job string `json:"job,omitempty"`
	// Answer is what became of the last request of an http hook.
	Answer string `json:"answer,omitempty"`
}
