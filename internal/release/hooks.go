package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
)

// HookType is what a hook is. It is written into workflow histories: never rename one.
type HookType string

// The types of hooks.
const (
	HookTypeJob      HookType = "job"
	HookTypeHTTP     HookType = "http"
	HookTypeWorkflow HookType = "workflow"
)

// TypeOfHook is the type of a hook.
func TypeOfHook(hook v1alpha1.Hook) HookType {
	switch {
	case hook.HTTP != nil:
		return HookTypeHTTP
	case hook.Workflow != nil:
		return HookTypeWorkflow
	}
	return HookTypeJob
}

// HookTry is what the name of a try is made of: each try of each sync has a name of its own, and the same try asks for
// the same name again.
type HookTry struct {
	ReleaseUID string
	Phase      string // preSync or postSync
	Hook       string
	Definition string // HookDefinition
	RunID      string // of the sync
	Try        int    // from 1
}

// Name is a DNS label of at most 63 characters: "migrate-3f2a9c81d07b44e6-1". It names the Job of the try, and is the
// idempotency key of its requests.
func (h HookTry) Name() string {
	prefix := strings.TrimRight(h.Hook[:min(len(h.Hook), 34)], "-")
	return fmt.Sprintf("%s-%s-%d", prefix, hashOf(h.ReleaseUID, h.Phase, h.Hook, h.Definition, h.RunID), h.Try)
}

func hashOf(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s,", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// maxWorkflowIDBytes is what a Temporal on PostgreSQL keeps of a workflow id; one byte more, and it answers nothing.
const maxWorkflowIDBytes = 255

// HookWorkflowID is the id of the workflow that a try of a workflow hook runs:
// "hook:team-a:shop:postSync:smoke:RUNID:1", where RUNID is the run of the sync. Of a Release with a very long name the
// name is cut, and a hash stands in.
func HookWorkflowID(namespace, name string, try HookTry) string {
	tail := fmt.Sprintf(":%s:%s:%s:%d", try.Phase, try.Hook, try.RunID, try.Try)
	head := "hook:" + namespace + ":" + name
	if over := len(head) + len(tail) - maxWorkflowIDBytes; over > 0 {
		hash := "~" + hashOf(namespace, name)
		head = strings.TrimRight(head[:len(head)-over-len(hash)], ".-") + hash
	}
	return head + tail
}

// ownWorkflows are the types of convoy's own workflows.
var ownWorkflows = []string{"ReleaseWorkflow", "SyncWorkflow", "DeleteWorkflow"}

// IsOwnWorkflow reports whether a workflow type is one of convoy's own: those are no hooks.
func IsOwnWorkflow(workflowType string) bool { return slices.Contains(ownWorkflows, workflowType) }

// HookDefinition is a hash of what a hook does (D25). When it runs, how long and how often it is tried are no part of
// it: changing those runs nothing again.
func HookDefinition(hook v1alpha1.Hook) string {
	kind := TypeOfHook(hook)
	var definition any
	switch kind {
	case HookTypeHTTP:
		definition = plain(hook.HTTP)
	case HookTypeWorkflow:
		definition = plain(hook.Workflow)
	default: // nulls and empty maps do not count, so that the hash survives a newer API library
		definition = withoutEmpty(plain(hook.Job))
	}
	sum := sha256.Sum256(canonical(map[string]any{string(kind): definition}))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// plain is a member of a hook as its JSON says it.
func plain(member any) map[string]any {
	raw, err := json.Marshal(member)
	if err != nil {
		panic(fmt.Sprintf("hook: %v", err)) // plain data: cannot happen
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var m map[string]any
	if err := decoder.Decode(&m); err != nil {
		panic(fmt.Sprintf("hook: %v", err))
	}
	return m
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

// HookRequest is one request of an http hook. None of its values but host and path of the URL may be shown.
type HookRequest struct {
	Method  string
	URL     string
	Headers map[string]string
	Body    []byte
	// Key signs the request; nil: it is not signed.
	Key []byte
	// IdempotencyKey is the same for all requests of one try.
	IdempotencyKey string
	// RetryOn are the statuses that are tried again; nil: the usual ones.
	RetryOn []int32
	// Timeout bounds the request, if it is shorter than the sender's own bound.
	Timeout time.Duration
}

// HookAnswer is what became of one request.
type HookAnswer struct {
	// Succeeded: the answer is 200 to 299.
	Succeeded bool
	// Again: another request may help.
	Again bool
	// After is how long the receiver asks to be left alone; 0: it does not say.
	After time.Duration
	// Message says what became of it, with method, host, path and status alone.
	Message string
}
