package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"convoy.dev/convoy/api/v1alpha1"
)

// MaxNameBytes is how long namespace and name of a Release may be together: workflow ids are made of them.
const MaxNameBytes = 200

// Summary is a text as the summary of a workflow: Temporal allows 400 bytes.
func Summary(text string) string { return clip(text, maxSummaryBytes-len("…")) }

const maxSummaryBytes = 400

// ReleaseWorkflowID is the id of the ReleaseWorkflow of a Release (SPEC 4).
func ReleaseWorkflowID(namespace, name string) string { return "release:" + namespace + ":" + name }

// SyncWorkflowID is the id of the SyncWorkflow of a Release (SPEC 4).
func SyncWorkflowID(namespace, name string) string { return "sync:" + namespace + ":" + name }

// The search attributes of syncs in Temporal. Release ("team-a/shop") and Cluster ("team-a/prod-eu", absent for the
// control cluster) are set from the start; the others only while a sync waits or once it has failed, since each change
// costs Temporal dearly: the step, the wave, the reason of the condition Applied, and whether a person has to act. convoy
// works without them.
const (
	AttributeRelease = "ConvoyRelease"
	AttributeCluster = "ConvoyCluster"
	AttributeStep    = "ConvoyStep"
	AttributeWave    = "ConvoyWave"
	AttributeReason  = "ConvoyReason"
	AttributeStalled = "ConvoyStalled"
)

// SearchAttributes are their types, in Temporal's words.
func SearchAttributes() map[string]string {
	return map[string]string{
		AttributeRelease: "Keyword", AttributeCluster: "Keyword", AttributeStep: "Keyword", AttributeWave: "Int",
		AttributeReason: "Keyword", AttributeStalled: "Bool",
	}
}

// CheckNames refuses what cannot be a Release: an empty name, one with a colon, or one that makes too long an id.
func CheckNames(namespace, name string) error {
	switch {
	case namespace == "" || name == "":
		return fmt.Errorf("namespace and name of the Release are needed, got %q and %q", namespace, name)
	case strings.Contains(namespace+name, ":"):
		return fmt.Errorf("namespace and name of a Release hold no colon, got %q and %q", namespace, name)
	case len(namespace)+len(name) > MaxNameBytes:
		return fmt.Errorf("namespace and name of the Release have %d bytes together, and at most %d are allowed", len(namespace)+len(name), MaxNameBytes)
	default:
		return nil
	}
}

// HookJob is what the name of a hook's Job is made of: each try of each sync has a name of its own, and the same try
// asks for the same name again.
type HookJob struct {
	ReleaseUID string
	Phase      string // preSync or postSync
	Hook       string
	Definition string // HookDefinition
	RunID      string // of the sync
	Try        int    // from 1
}

// Name is a DNS label of at most 63 characters: "migrate-3f2a9c81d07b44e6-1".
func (j HookJob) Name() string {
	h := sha256.New()
	for _, part := range []string{j.ReleaseUID, j.Phase, j.Hook, j.Definition, j.RunID} {
		fmt.Fprintf(h, "%d:%s,", len(part), part)
	}
	prefix := strings.TrimRight(j.Hook[:min(len(j.Hook), 34)], "-")
	return fmt.Sprintf("%s-%s-%d", prefix, hex.EncodeToString(h.Sum(nil)[:8]), j.Try)
}

// HookDefinition is a hash of what a hook does (D25). When it runs, how long and how often it is tried are no part of
// it: changing those runs nothing again. Nulls and empty maps do not count, so that the hash survives a newer API
// library.
func HookDefinition(hook v1alpha1.Hook) string {
	raw, err := json.Marshal(hook.Job)
	if err != nil {
		panic(fmt.Sprintf("hook %s: %v", hook.Name, err)) // plain data: cannot happen
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var m map[string]any
	if err := decoder.Decode(&m); err != nil {
		panic(fmt.Sprintf("hook %s: %v", hook.Name, err))
	}
	sum := sha256.Sum256(canonical(map[string]any{"job": withoutEmpty(m)}))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// withoutEmpty drops nulls and empty maps, at every depth.
func withoutEmpty(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return withoutEmptyItems(v)
	}
	for key, value := range m {
		value = withoutEmpty(value)
		m[key] = value
		inner, isMap := value.(map[string]any)
		if value == nil || isMap && len(inner) == 0 {
			delete(m, key)
		}
	}
	return m
}

func withoutEmptyItems(v any) any {
	list, ok := v.([]any)
	if !ok {
		return v
	}
	for i := range list {
		list[i] = withoutEmpty(list[i])
	}
	return list
}
