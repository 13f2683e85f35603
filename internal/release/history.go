package release

import "convoy.dev/convoy/api/v1alpha1"

// RecordSuccess puts an applied render at the head of the history: newest first, at most limit entries (limit below 1
// counts as 1). A render that is the newest already is no new entry: its LastAppliedAt and what led to it move.
func RecordSuccess(history []v1alpha1.HistoryEntry, entry v1alpha1.HistoryEntry, limit int) []v1alpha1.HistoryEntry {
	rest := history
	if len(history) > 0 && history[0].Digest == entry.Digest {
		entry.FirstAppliedAt = history[0].FirstAppliedAt
		rest = history[1:]
	}
	limit = max(limit, 1)
	out := append(make([]v1alpha1.HistoryEntry, 0, limit), entry)
	return append(out, rest[:min(len(rest), limit-1)]...)
}
