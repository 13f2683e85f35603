//go:build bench

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestBench compares whole syncs, and idle passes of the loop, with the floor: one sequential apply PATCH for each object
// of the render with client-go and no rate limit, on the same API server in the same run. Ratios are what counts: the
// machine sets the seconds.
//
//	make bench
func TestBench(t *testing.T) {
	patience = 15 * time.Minute
	fmt.Printf("%16s %12s %8s %8s %6s %9s %8s %6s %7s %9s %6s %11s\n",
		"objects", "pass", "floor", "took", "ratio", "requests", "dry run", "apply", "delete", "get+list", "other", "worker MiB")
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
			b := &bench{world: newWorld(t), name: row.name}
			b.worker, b.user = b.countedWorker("--path-root", b.TempDir())
			floorNS := newWorld(t).ns
			b.release("bench", row.render(b.ns, row.objects), nil)
			render := func(ns string) string { return row.render(ns, row.objects) }
			for _, pass := range []struct {
				name   string
				change func(string) string
				run    func()
			}{
				{"first", same, b.synced},
				{"unchanged", same, b.synced},
				{"idle", same, nil},
				{"10% changed", aTenthChanged, b.synced},
				{"10% pruned", aTenthGone, b.synced},
			} {
				floor := floorOf(t, b.world, "floor", pass.change(render(floorNS))).run(t)
				if changed := pass.change(render(b.ns)); changed != render(b.ns) {
					b.render("bench", changed)
				}
				if pass.run == nil {
					b.idle(floor)
					continue
				}
				b.measured(pass.name, floor, func() time.Duration {
					began := time.Now()
					pass.run()
					return time.Since(began)
				})
			}
		})
	}
}

// bench is one row of renders.
type bench struct {
	*world
	name   string
	worker *workerProcess
	user   string
}

func (b *bench) synced() { b.succeeds("bench") }

// idle measures a pass of the loop that finds nothing to do.
func (b *bench) idle(floor time.Duration) {
	b.Helper()
	loop := b.loop("bench")
	b.is("the loop rests", func() bool { return b.looks(loop) == 1 })
	attempt := b.get("bench").Status.LastAttempted.RunID
	b.measured("idle", floor, func() time.Duration { return b.reconcile(loop) })
	require.Equal(b, attempt, b.get("bench").Status.LastAttempted.RunID)
	require.NoError(b, b.temporal.TerminateWorkflow(b.Context(), loop.GetID(), "", "by the bench"))
}

// measured runs a pass and prints what it took and sent.
func (b *bench) measured(pass string, floor time.Duration, run func() time.Duration) {
	b.Helper()
	since := b.mark()
	took := run()
	sent := of(b.allRequests(since), b.user)
	dry, gone, reads := len(dryRuns(sent)), count(sent, "delete"), count(sent, "get", "list")
	applied := len(changes(sent)) - gone
	fmt.Printf("%16s %12s %7.2fs %7.2fs %6.2f %9d %8d %6d %7d %9d %6d %11d\n", b.name, pass,
		floor.Seconds(), took.Seconds(), took.Seconds()/floor.Seconds(), len(sent), dry, applied, gone, reads,
		len(sent)-dry-applied-gone-reads, procStatus(b.T, b.worker.command.Process.Pid, "VmHWM")/1024)
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

func same(render string) string { return render }

// aTenthChanged gives every tenth object an annotation.
func aTenthChanged(render string) string {
	objects := strings.SplitAfter(render, "---\n")
	for i := 1; i < len(objects); i += 10 {
		objects[i] = strings.Replace(objects[i], "metadata: {name:", "metadata: {annotations: {bench: changed}, name:", 1)
	}
	return strings.Join(objects, "")
}

// aTenthGone leaves every tenth object out of the changed render.
func aTenthGone(render string) string {
	objects := strings.SplitAfter(aTenthChanged(render), "---\n")
	for i := 5; i < len(objects); i += 10 {
		objects[i] = "---\n"
	}
	return strings.Join(objects, "")
}
