package release

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"convoy.dev/convoy/api/v1alpha1"
)

func lasting(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

// D22: the backoff doubles from initialInterval, is bounded by maxInterval, and never later than the interval.
func TestCadence_D22_backs_off(t *testing.T) {
	patient := Cadence{Interval: time.Hour, RetryInitial: 10 * time.Second, RetryMax: 5 * time.Minute}
	busy := Cadence{Interval: time.Minute, RetryInitial: 10 * time.Second, RetryMax: 5 * time.Minute}
	for _, c := range []struct {
		cadence  Cadence
		failures int
		want     time.Duration
	}{
		{patient, 0, time.Hour},
		{patient, 1, 10 * time.Second},
		{patient, 2, 20 * time.Second},
		{patient, 3, 40 * time.Second},
		{patient, 5, 160 * time.Second},
		{patient, 6, 5 * time.Minute},
		{patient, 7, 5 * time.Minute},
		{patient, 1_000_000, 5 * time.Minute},
		{busy, 0, time.Minute},
		{busy, 3, 40 * time.Second},
		{busy, 4, time.Minute},
		{busy, 50, time.Minute},
		{Cadence{Interval: time.Hour, RetryInitial: time.Minute, RetryMax: time.Second}, 1, time.Second},
	} {
		require.Equal(t, start.Add(Spread("u", c.want)), c.cadence.Next("u", start, c.failures), "%+v", c)
	}
}

// D22: the cadence of a Release that does not say, and of one that does.
func TestCadence_D22_of_a_Release(t *testing.T) {
	require.Equal(t, Cadence{Interval: 5 * time.Minute, RetryInitial: 10 * time.Second, RetryMax: 5 * time.Minute}, CadenceOf(v1alpha1.ReleaseSpec{}))
	require.Equal(t, time.Hour, ResyncInterval(v1alpha1.ReleaseSpec{}))
	spec := v1alpha1.ReleaseSpec{Interval: lasting(time.Minute)}
	spec.SyncPolicy.Retry = v1alpha1.RetryPolicy{InitialInterval: lasting(time.Second), MaxInterval: lasting(2 * time.Second)}
	spec.SyncPolicy.ResyncInterval = lasting(3 * time.Hour)
	require.Equal(t, Cadence{Interval: time.Minute, RetryInitial: time.Second, RetryMax: 2 * time.Second}, CadenceOf(spec))
	require.Equal(t, 3*time.Hour, ResyncInterval(spec))
	spec.Interval = lasting(0)
	require.Equal(t, 5*time.Minute, CadenceOf(spec).Interval)
}

// D22: the jitter is a share that belongs to the Release: at most a tenth earlier, always the same, and another one for
// another Release, all over the range.
func TestCadence_D22_spreads(t *testing.T) {
	seen, early, late := map[time.Duration]bool{}, false, false
	for i := range 200 {
		uid := fmt.Sprintf("uid-%d", i)
		got := Spread(uid, time.Hour)
		require.Equal(t, got, Spread(uid, time.Hour))
		require.LessOrEqual(t, got, time.Hour)
		require.GreaterOrEqual(t, got, 54*time.Minute)
		require.InDelta(t, float64(got), float64(2*Spread(uid, 30*time.Minute)), 10, "a share of the duration")
		seen[got] = true
		early, late = early || got < 55*time.Minute, late || got > 59*time.Minute
	}
	require.Greater(t, len(seen), 190)
	require.True(t, early && late)
	require.Zero(t, Spread("u", 0))
}

// S7 D1 D22 D23: which ends are tried again with backoff. The others wait for the next periodic reconcile.
func TestRetries_S7_D22(t *testing.T) {
	for reason, want := range map[Reason]bool{
		DeployFailed: true, PruneFailed: true, HookFailed: true,
		Succeeded: false, Unappliable: false, RenderFailed: false, WaveTimeout: false, Superseded: false, Progressing: false, WaitingForWave: false, "": false,
	} {
		require.Equal(t, want, Retries(reason, false), reason)
		require.Equal(t, want || reason == RenderFailed, Retries(reason, true), "%s, and the source was out of reach", reason)
	}
}

// leaves visits every value of a spec that a person can set, pointers and lists filled with one element.
func leaves(v reflect.Value, path string, visit func(path string, v reflect.Value)) {
	switch v.Interface().(type) {
	case metav1.Duration, batchv1.JobTemplateSpec, runtime.RawExtension, map[string]string:
		visit(path, v)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		leaves(v.Elem(), path, visit)
	case reflect.Slice:
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		leaves(v.Index(0), path+"[]", visit)
	case reflect.Struct:
		for i := range v.NumField() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			leaves(v.Field(i), strings.TrimPrefix(path+"."+name, "."), visit)
		}
	default:
		visit(path, v)
	}
}

// put gives a leaf one of two values.
func put(t *testing.T, v reflect.Value, second bool) {
	t.Helper()
	n := int64(1)
	if second {
		n = 2
	}
	switch value := v.Addr().Interface().(type) {
	case *metav1.Duration:
		value.Duration = time.Duration(n) * time.Second
		return
	case *batchv1.JobTemplateSpec:
		value.Name = fmt.Sprint(n)
		return
	case *runtime.RawExtension:
		value.Raw = fmt.Appendf(nil, `{"n":%d}`, n)
		return
	case *map[string]string:
		*value = map[string]string{"n": fmt.Sprint(n)}
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint(n))
	case reflect.Bool:
		v.SetBool(second)
	case reflect.Int32, reflect.Int64:
		v.SetInt(n)
	default:
		require.Failf(t, "a kind of field that this test does not know", "%s", v.Type())
	}
}

// D23: every field of a Release counts, so that its change starts a sync and supersedes a waiting one, except those
// that a sync does not depend on. A new field counts unless it is listed here.
func TestSpecSum_D23_counts_every_field_that_a_sync_depends_on(t *testing.T) {
	ignored := map[string]bool{
		"interval": true, "suspend": true, "revisionHistoryLimit": true, "deletionPolicy": true, "syncPolicy.mode": true,
		"syncPolicy.resyncInterval": true, "syncPolicy.retry.initialInterval": true, "syncPolicy.retry.maxInterval": true,
	}
	sumWith := func(changed string) string {
		var spec v1alpha1.ReleaseSpec
		leaves(reflect.ValueOf(&spec).Elem(), "", func(path string, v reflect.Value) { put(t, v, path == changed) })
		return SpecSum(spec)
	}
	before := sumWith("")
	require.Equal(t, before, sumWith(""))
	var spec v1alpha1.ReleaseSpec
	var paths []string
	leaves(reflect.ValueOf(&spec).Elem(), "", func(path string, _ reflect.Value) { paths = append(paths, path) })
	for _, path := range paths {
		require.Equal(t, ignored[path], before == sumWith(path), path)
		delete(ignored, path)
	}
	require.Empty(t, ignored, "no such fields")
	require.Contains(t, paths, "syncPolicy.waves[].health.timeout")
	require.Contains(t, paths, "hooks.preSync[].job.template")
}

// D23: the sum leaves the spec alone.
func TestSpecSum_D23_changes_nothing(t *testing.T) {
	spec := v1alpha1.ReleaseSpec{Interval: lasting(time.Minute), Suspend: true, DeletionPolicy: v1alpha1.DeletionPrune}
	spec.SyncPolicy.Mode = v1alpha1.SyncManual
	before := spec.DeepCopy()
	require.NotEmpty(t, SpecSum(spec))
	require.Equal(t, *before, spec)
}
