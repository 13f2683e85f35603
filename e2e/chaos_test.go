package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/teststack"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
)

// chaosOf is how much of it: a sample in make test, the whole in make chaos (CONVOY_CHAOS=all). Every part is killed as
// often as kills says, each time while a sync runs.
type chaosOf struct{ releases, syncs, kills int }

func howMuchChaos() chaosOf {
	if os.Getenv("CONVOY_CHAOS") == "all" {
		return chaosOf{releases: 12, syncs: 50, kills: 3}
	}
	return chaosOf{releases: 4, syncs: 10, kills: 1}
}

// The parts that are killed.
const (
	theAPIServer = "API server"
	theTemporal  = "Temporal server"
	theWorker    = "worker"
)

// S20 S21 D13 D16 D22 D33: the API server, the Temporal server and the worker are killed and come back, each while a
// sync runs, and at the end every Release is applied and every inventory is what the cluster holds.
func TestChaos_every_part_is_killed_in_mid_sync(t *testing.T) {
	t.Parallel()
	much := howMuchChaos()
	c := newChaos(t, much)
	var victims []string
	for range much.kills {
		victims = append(victims, theAPIServer, theTemporal, theWorker)
	}
	c.random.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
	c.everything() // the first sync of each Release is one of those that count
	for left := victims; len(left) > 0; {
		c.batch((much.syncs - much.releases) / len(victims))
		if c.killInMidSync(left[0]) {
			left = left[1:]
		}
		if c.random.IntN(2) == 0 {
			c.everything()
		}
	}
	for c.syncs < much.syncs {
		c.batch(1)
	}
	c.everything()
	c.isWhole()
	t.Logf("%d changes to sync, killed in mid-sync: %v", c.syncs, victims)
}

// chaos is a stack of its own, whose parts may be killed.
type chaos struct {
	*world
	random *rand.Rand
	server struct {
		own   *teststack.Own
		flags []string
	}
	process *workerProcess
	rounds  map[string]int // what each Release was changed to last
	wanted  map[string]int64
	syncs   int
}

func newChaos(t *testing.T, much chaosOf) *chaos {
	t.Helper()
	c := &chaos{random: seeded(t), rounds: map[string]int{}, wanted: map[string]int64{}}
	cluster, err := teststack.Start("--temporal=false", "--ui=false", "--restart")
	require.NoError(t, err)
	t.Cleanup(cluster.Stop)
	c.server.flags = []string{"--kubernetes=false", "--ui=false", "--data-dir", filepath.Join(t.TempDir(), "temporal")}
	c.server.own, err = teststack.Start(c.server.flags...)
	require.NoError(t, err)
	t.Cleanup(func() { c.server.own.Stop() })
	info := cluster.Info
	info.TemporalAddress = c.server.own.TemporalAddress
	_, port, _ := strings.Cut(info.TemporalAddress, ":")
	c.server.flags = append(c.server.flags, "--temporal-port", port)

	cfg, client, temporal, err := connect(info)
	require.NoError(t, err)
	t.Cleanup(temporal.Close)
	c.world = &world{
		T: t, ns: teststack.Namespace(t, cfg), kube: client, temporal: temporal, info: info, cfg: cfg, taskQueue: "convoy-chaos",
	}
	c.startWorker()
	t.Cleanup(func() { c.process.stop() })
	for i := range much.releases {
		name := fmt.Sprintf("r%02d", i)
		c.release(name, c.manifests(name), func(rel *v1alpha1.Release) {
			rel.Spec.SyncPolicy.Retry.InitialInterval = &metav1.Duration{Duration: time.Second}
			rel.Spec.SyncPolicy.Retry.MaxInterval = &metav1.Duration{Duration: 5 * time.Second}
			every(20 * time.Second)(rel)
		})
		c.wanted[name] = 1
		c.syncs++
	}
	return c
}

// startWorker starts the worker, whose watch starts the loops.
func (c *chaos) startWorker() {
	c.eventually("the worker starts", func() error {
		var err error
		c.process, err = startWorkerAt(c.info.Kubeconfig, c.info.TemporalAddress, c.taskQueue, "--watch=true")
		return err
	})
}

const chaosObjects = 8

// manifests are two waves, most of which changes with every round; one object of each round is gone in the next.
func (c *chaos) manifests(name string) string {
	v := strconv.Itoa(c.rounds[name])
	return manifests(c.ns, name+"-a", chaosObjects, 0, v) + manifest(c.ns, name+"-only-"+v, 0, v) +
		manifests(c.ns, name+"-b", chaosObjects, 1, v)
}

func (c *chaos) expected(name string) []string {
	all := slices.Concat(c.records(name+"-a", chaosObjects), c.records(name+"-b", chaosObjects),
		[]string{c.cm(name + "-only-" + strconv.Itoa(c.rounds[name]))})
	slices.Sort(all)
	return all
}

// batch changes some Releases.
func (c *chaos) batch(n int) {
	c.Helper()
	names := make([]string, 0, len(c.wanted))
	for i := range len(c.wanted) {
		names = append(names, fmt.Sprintf("r%02d", i))
	}
	c.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names[:max(1, min(n, len(names)))] {
		c.rounds[name]++
		render := c.manifests(name)
		c.eventually("change "+name, func() error {
			rel := &v1alpha1.Release{}
			if err := c.kube.Get(c.Context(), types.NamespacedName{Namespace: c.ns, Name: name}, rel); err != nil {
				return err
			}
			rel.Spec.Source.Inline = &render
			err := c.kube.Update(c.Context(), rel)
			c.wanted[name] = rel.Generation
			return err
		})
		c.syncs++
	}
}

// running names a Release whose sync runs now.
func (c *chaos) running() (string, error) {
	list := &v1alpha1.ReleaseList{}
	ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
	defer cancel()
	if err := c.kube.List(ctx, list, kube.InNamespace(c.ns)); err != nil {
		return "", err
	}
	for i := range list.Items {
		if last := list.Items[i].Status.LastAttempted; last != nil && last.Result == v1alpha1.ResultRunning {
			return list.Items[i].Name, nil
		}
	}
	return "", errors.New("no sync runs")
}

// killInMidSync kills a part at some moment of a sync, and brings it back. It reports whether a sync ran then.
func (c *chaos) killInMidSync(part string) bool {
	c.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for _, err := c.running(); err != nil; _, err = c.running() {
		if time.Now().After(deadline) {
			return false
		}
		<-time.After(20 * time.Millisecond)
	}
	<-time.After(time.Duration(c.random.IntN(400)) * time.Millisecond)
	name, err := c.running()
	if err != nil {
		return false
	}
	began := time.Now()
	switch part {
	case theAPIServer:
		require.NoError(c, syscall.Kill(c.apiServerPID(), syscall.SIGKILL))
		c.eventually("the API server is back", func() error {
			ctx, cancel := context.WithTimeout(c.Context(), 5*time.Second)
			defer cancel()
			return c.kube.Get(ctx, types.NamespacedName{Name: c.ns}, &corev1.Namespace{})
		})
	case theTemporal:
		c.server.own.Kill()
		c.server.own, err = teststack.Start(c.server.flags...)
		require.NoError(c, err)
	case theWorker:
		c.process.kill()
		<-time.After(time.Duration(c.random.IntN(2000)) * time.Millisecond)
		c.startWorker()
	}
	c.Logf("killed: %s, while Release %s was synced; back after %s", part, name, time.Since(began).Round(100*time.Millisecond))
	return true
}

// everything waits until the last change of every Release is applied.
func (c *chaos) everything() {
	c.Helper()
	c.eventually("every Release is applied", func() error {
		list := &v1alpha1.ReleaseList{}
		if err := c.kube.List(c.Context(), list, kube.InNamespace(c.ns)); err != nil {
			return err
		}
		for i := range list.Items {
			rel := &list.Items[i]
			applied := meta.FindStatusCondition(rel.Status.Conditions, v1alpha1.ConditionApplied)
			if applied == nil || applied.Status != metav1.ConditionTrue || applied.ObservedGeneration < c.wanted[rel.Name] {
				return fmt.Errorf("%s, of which generation %d is wanted: %+v", rel.Name, c.wanted[rel.Name], applied)
			}
		}
		return nil
	})
}

// isWhole: inventories and cluster agree, and nothing else that convoy applied is left.
func (c *chaos) isWhole() {
	c.Helper()
	var all []string
	for i := range len(c.wanted) {
		name := fmt.Sprintf("r%02d", i)
		require.Equal(c, c.expected(name), c.inventory(name), name)
		all = append(all, c.expected(name)...)
		for _, object := range []string{name + "-a-00", name + "-b-00"} {
			require.Equal(c, strconv.Itoa(c.rounds[name]), c.configMap(object).Data["v"], object)
		}
	}
	slices.Sort(all)
	require.Equal(c, all, c.appliedByConvoy(), "the cluster")
}
