//go:build bench

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestBench compares whole syncs with the floor, one sequential apply PATCH for each object with client-go and no rate
// limit, on the same API server in the same run. Ratios are what counts: the machine sets the seconds.
//
//	make bench
func TestBench(t *testing.T) {
	patience = 15 * time.Minute
	fmt.Printf("%16s %10s %8s %8s %6s %9s %8s %6s %9s %6s %11s\n",
		"objects", "pass", "floor", "sync", "ratio", "requests", "dry run", "apply", "get+list", "other", "worker MiB")
	for _, row := range []struct {
		name    string
		objects int
		render  func(ns string, n int) string
	}{
		{"100 mixed", 100, mixedObjects},
		{"1000 mixed", 1000, mixedObjects},
		{"5000 ConfigMaps", 5000, manyConfigMaps},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			worker, user := w.countedWorker("--path-root", w.TempDir())
			floorNS := newWorld(t).ns
			w.release("bench", row.render(w.ns, row.objects), nil)
			for _, pass := range []string{"first", "unchanged"} {
				floor := floorOf(t, w, "floor", row.render(floorNS, row.objects)).run(t)
				since := w.mark()
				began := time.Now()
				w.succeeds("bench")
				took := time.Since(began)
				sent := of(w.allRequests(since), user)
				dry, applied, reads := len(dryRuns(sent)), len(changes(sent)), count(sent, "get", "list")
				fmt.Printf("%16s %10s %7.2fs %7.2fs %6.2f %9d %8d %6d %9d %6d %11d\n", row.name, pass,
					floor.Seconds(), took.Seconds(), took.Seconds()/floor.Seconds(), len(sent), dry, applied, reads,
					len(sent)-dry-applied-reads, procStatus(t, worker.command.Process.Pid, "VmHWM")/1024)
			}
		})
	}
}

func count(list []request, verbs ...string) int {
	return len(filter(list, func(r request) bool { return slices.Contains(verbs, r.Verb) }))
}

func manyConfigMaps(ns string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%d, namespace: %s}\ndata: {v: \"%d\"}\n", i, ns, i)
	}
	return b.String()
}
