package release

// Deletion is what became of a delete.
type Deletion struct {
	// Changed: the object is not the one that was read, look again (D17).
	Changed bool
	// Terminating: finalizers hold the object (D18).
	Terminating bool
	Finalizers  []string
}

// Health is the judgement on a set of objects (D24).
type Health struct {
	Healthy  bool
	Blockers []Unhealthy
}

// Unhealthy is an object that is not Current by the rules of kstatus.
type Unhealthy struct {
	Ref     ObjectRef
	Message string
	// Failed: it will not become Current by waiting.
	Failed bool
}

// JobState is what a hook's Job has come to.
type JobState struct {
	Found     bool
	UID       string
	Done      bool
	Succeeded bool
	Message   string
}

// Looked is an object as it is on the target cluster, for an expression to judge (D24).
type Looked struct {
	Ref ObjectRef
	// Content is the whole object, metadata only for a Secret (D10); nil when it is absent.
	Content map[string]any
	// Unsettled says why its status is not about what this sync left: it is absent, being deleted, or its controller has
	// not observed its generation. Empty when it is to be trusted.
	Unsettled string
}
