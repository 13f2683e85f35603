package release

import (
	"testing"

	"github.com/stretchr/testify/require"

	"convoy.dev/convoy/api/v1alpha1"
)

// S19: the inventory records group, kind, namespace and name, and what was recorded is the object that was applied.
func TestRecordsKeepTheWholeIdentity(t *testing.T) {
	ref := ObjectRef{"apps", "Deployment", "team-a", "web"}
	require.Equal(t, []v1alpha1.ObjectRecord{{Group: "apps", Kind: "Deployment", Namespace: "team-a", Name: "web"}}, Records([]ObjectRef{ref}))
	require.Equal(t, []ObjectRef{ref}, RefsOf(Records([]ObjectRef{ref})))
}
