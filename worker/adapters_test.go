package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/control"
	"convoy.dev/convoy/internal/k8s"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// overloaded answers every request at once, and never with what was asked for.
type overloaded struct{}

func (overloaded) RoundTrip(*http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	answer.WriteHeader(http.StatusServiceUnavailable)
	return answer.Result(), nil
}

// D22: a step of a worker tries accidents of either cluster for 40s, and no longer. The last pause that does not fit is
// at most 6.25s long: 5s and a quarter of jitter.
func TestTargets_D22_accidents_are_tried_for_40s(t *testing.T) {
	for name, use := range map[string]func(context.Context, targets) error{
		"target cluster": func(ctx context.Context, t targets) error {
			target, err := t.Connect(ctx, &v1alpha1.Release{}, nil)
			if err != nil {
				return err
			}
			_, err = target.Identity(ctx)
			return err
		},
		"control cluster": func(ctx context.Context, t targets) error {
			rel := &v1alpha1.Release{}
			rel.Spec.ClusterRef = &v1alpha1.ClusterReference{Name: "far"}
			_, err := t.Connect(ctx, rel, nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster, err := control.New(&rest.Config{Host: "http://cluster.test", Transport: overloaded{}})
				require.NoError(t, err)
				began := time.Now()
				err = use(t.Context(), targets{pool: k8s.NewPool(), control: cluster})
				took := time.Since(began)
				require.Error(t, err)
				require.LessOrEqual(t, took, 40*time.Second)
				require.Greater(t, took, 33*time.Second+700*time.Millisecond)
			})
		})
	}
}

// S8 D17: a cluster that cannot tell now is not one that does not know.
func TestTarget_Scope_tells_an_unknown_kind_from_an_accident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster, err := k8s.NewPool().Connect(&rest.Config{Host: "http://cluster.test", Transport: overloaded{}})
		require.NoError(t, err)
		_, known, err := target{cluster.Session(k8s.SessionOptions{})}.Scope(t.Context(), v1alpha1.GroupVersion.WithKind("Release"))
		require.False(t, known)
		var failure *release.Failure
		require.ErrorAs(t, err, &failure)
		require.Equal(t, release.Accident, failure.Class)
	})
}
