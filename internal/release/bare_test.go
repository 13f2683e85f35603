package release

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// D13 D17: convoy knows its own objects by the entry that an apply leaves in managedFields. What leaves none was
// measured on kube-apiserver 1.37.
func TestBareObjectsAreThoseWhoseApplyLeavesNoEntry(t *testing.T) {
	for manifest, bare := range map[string]bool{
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}}`:                                           true,
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, namespace: shop}}`:                          true,
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, uid: u, creationTimestamp: null}}`:          true,
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, finalizers: []}, secrets: []}`:              true,
		`{apiVersion: v1, kind: Namespace, metadata: {name: a}, status: {phase: Active}}`:                       true,
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, labels: {}}}`:                               false,
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, annotations: null}}`:                        false,
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, finalizers: [example.test/a]}}`:             false,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: null}`:                                    false,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {}}`:                                      false,
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}, automountServiceAccountToken: false}`:      false,
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}, secrets: [{name: b}]}`:                     false,
		`{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {password: x}}`:                        false,
		`{apiVersion: example.test/v1, kind: Widget, metadata: {name: a}, spec: {list: [], inner: {list: []}}}`: true,
	} {
		render, err := Parse([]File{{Name: "inline", Data: []byte(manifest)}})
		require.NoError(t, err, manifest)
		require.Equal(t, bare, render.Objects[0].Bare, manifest)

		stored, err := Decode(Encode(render))
		require.NoError(t, err)
		require.Equal(t, bare, stored.Objects[0].Bare, "from the store: %s", manifest)
	}
}
