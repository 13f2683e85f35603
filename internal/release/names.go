package release

import (
	"fmt"
	"strings"
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
