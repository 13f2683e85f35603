package release

import (
	"errors"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// D19 D31: what an inventory says against a sync.
func TestWhatAnInventoryRefuses(t *testing.T) {
	ref := ObjectRef{Kind: "ConfigMap", Namespace: "team-a", Name: "a"}
	records := Records([]ObjectRef{ref})
	for name, c := range map[string]struct {
		inv            v1alpha1.InventorySpec
		plan           Plan
		allowEmpty     bool
		another, empty bool
	}{
		"D31 this cluster":                      {inv: v1alpha1.InventorySpec{Objects: records, ClusterUID: "uid"}, plan: Plan{Items: []Item{{Ref: ref}}}},
		"D31 this cluster, known by address":    {inv: v1alpha1.InventorySpec{Objects: records, ClusterUID: "address"}, plan: Plan{Items: []Item{{Ref: ref}}}},
		"D31 a cluster that was never noted":    {inv: v1alpha1.InventorySpec{Objects: records}, plan: Plan{Items: []Item{{Ref: ref}}}},
		"D31 another cluster":                   {inv: v1alpha1.InventorySpec{Objects: records, ClusterUID: "other"}, plan: Plan{Items: []Item{{Ref: ref}}}, another: true},
		"D31 another cluster, pending alone":    {inv: v1alpha1.InventorySpec{Pending: records, ClusterUID: "other"}, plan: Plan{Items: []Item{{Ref: ref}}}, another: true},
		"D31 another cluster, nothing is there": {inv: v1alpha1.InventorySpec{ClusterUID: "other"}},
		"D19 an empty render":                   {inv: v1alpha1.InventorySpec{Objects: records}, empty: true},
		"D19 an empty render, pending alone":    {inv: v1alpha1.InventorySpec{Pending: records}, empty: true},
		"D19 an empty render that is allowed":   {inv: v1alpha1.InventorySpec{Objects: records}, allowEmpty: true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.another, DescribesAnother(c.inv, "uid", "address"))
			require.Equal(t, c.empty, WouldEmpty(c.inv, &c.plan, v1alpha1.PrunePolicy{AllowEmpty: c.allowEmpty}))
		})
	}
}

// D27: which objects of other Releases may move.
func TestClashes_D27(t *testing.T) {
	self := types.NamespacedName{Namespace: "team-a", Name: "shop"}
	far := types.NamespacedName{Namespace: "team-b", Name: "other"}
	near := types.NamespacedName{Namespace: "team-a", Name: "old"}
	agrees := map[string]string{AnnotationHandOver: "team-a/shop"}
	unreachable := errors.New("out of reach")
	for name, c := range map[string]struct {
		owner    types.NamespacedName
		adopt    string
		recorded bool
		says     map[string]string
		fails    error
		want     bool
		err      error
	}{
		"no adoption asked for":              {owner: near, want: true},
		"another word than enabled":          {owner: near, adopt: "true", want: true},
		"inside a namespace":                 {owner: near, adopt: "enabled"},
		"the loser agrees":                   {owner: far, adopt: "enabled", says: agrees},
		"the loser is silent":                {owner: far, adopt: "enabled", want: true},
		"the loser agrees to another":        {owner: far, adopt: "enabled", says: map[string]string{AnnotationHandOver: "team-a/web"}, want: true},
		"the loser agrees, nobody asks":      {owner: far, says: agrees, want: true},
		"the loser is gone":                  {owner: far, adopt: "enabled", fails: ErrNotFound},
		"the loser cannot be asked":          {owner: far, adopt: "enabled", fails: unreachable, err: unreachable},
		"recorded here already, so it is us": {owner: far, recorded: true},
	} {
		t.Run(name, func(t *testing.T) {
			ref := ObjectRef{Kind: "ConfigMap", Namespace: "team-a", Name: "a"}
			items := []Item{{Object: &Object{Annotations: map[string]string{AnnotationAdopt: c.adopt}}, Ref: ref}, {Object: &Object{}, Ref: ObjectRef{Kind: "ConfigMap", Name: "free"}}}
			var recorded []ObjectRef
			if c.recorded {
				recorded = append(recorded, ref)
			}
			clashes, err := Clashes(self, items, recorded, Claims{ref: c.owner}, func(owner types.NamespacedName) (map[string]string, error) {
				require.Equal(t, far, owner, "only a Release of another namespace has a say")
				return c.says, c.fails
			})
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.want, len(clashes) == 1)
			if c.want {
				require.Equal(t, "ConfigMap team-a/a belongs to Release "+c.owner.String(), clashes[0].String())
			}
		})
	}
	require.Contains(t, HowToMove(self), "convoy.dev/hand-over: team-a/shop")
}
