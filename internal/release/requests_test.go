package release

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"convoy.dev/convoy/api/v1alpha1"
)

// D26: requests become one: forced if one of them was, each id once, in the order in which they came.
func TestRequests_D26_become_one(t *testing.T) {
	var none *Request
	first := none.Join(Request{IDs: []string{"a"}, RequestedBy: "ann"})
	require.Equal(t, &Request{IDs: []string{"a"}, RequestedBy: "ann"}, first)
	second := first.Join(Request{IDs: []string{"b", "a"}, Force: true, RequestedBy: "bob"})
	require.Equal(t, &Request{IDs: []string{"a", "b"}, Force: true, RequestedBy: "ann, bob"}, second)
	third := second.Join(Request{IDs: []string{"c"}, RequestedBy: "ann"})
	require.Equal(t, &Request{IDs: []string{"a", "b", "c"}, Force: true, RequestedBy: "ann, bob"}, third, "force is sticky")
	require.Equal(t, third, third.Join(Request{}))
	require.Equal(t, []string{"a"}, first.IDs, "the one before is not changed")
	require.Equal(t, &Request{IDs: []string{"a", "b"}, RequestedBy: "ann, bob"}, (&Request{IDs: []string{"a"}}).Join(Request{IDs: []string{"b"}, RequestedBy: "ann, bob, ann"}))
}

// D26 D35: the names of those who asked are bounded; one that no longer fits is left out whole.
func TestRequests_D26_bound_the_names(t *testing.T) {
	var all *Request
	for i := range 100 {
		all = all.Join(Request{IDs: []string{fmt.Sprint(i)}, RequestedBy: fmt.Sprintf("person-%02d", i)})
	}
	require.Len(t, all.IDs, 100)
	require.LessOrEqual(t, len(all.RequestedBy), 200)
	require.True(t, strings.HasPrefix(all.RequestedBy, "person-00, person-01, "))
	require.Len(t, strings.Split(all.RequestedBy, ", "), 18)
	require.Empty(t, (&Request{}).Join(Request{RequestedBy: strings.Repeat("x", 300)}).RequestedBy)
}

func answered(ids ...string) []v1alpha1.HandledRequest {
	var out []v1alpha1.HandledRequest
	for _, id := range ids {
		out = append(out, v1alpha1.HandledRequest{ID: id})
	}
	return out
}

func numbers(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

// D26 D35: the newest answer stands first, an id stands once, and 20 are kept, among them the annotation's.
func TestRequests_D26_handled_ones_are_listed_newest_first(t *testing.T) {
	list := Handle(nil, answered("a", "b"), "")
	require.Equal(t, answered("b", "a"), list)
	list = Handle(list, answered("c"), "")
	require.Equal(t, answered("c", "b", "a"), list)
	require.True(t, Handled(list, "a"))
	require.False(t, Handled(list, "d"))

	again := Handle(list, []v1alpha1.HandledRequest{{ID: "a", Result: "Failed"}}, "")
	require.Equal(t, append([]v1alpha1.HandledRequest{{ID: "a", Result: "Failed"}}, answered("c", "b")...), again)

	full := Handle(nil, answered(numbers(0, 20)...), "0")
	require.Len(t, full, 20)
	kept := Handle(full, answered(numbers(20, 25)...), "0")
	require.Len(t, kept, 20)
	require.Equal(t, "24", kept[0].ID)
	require.Equal(t, "0", kept[19].ID, "the Release still carries it, and it would be served again")
	require.Equal(t, "6", kept[18].ID)
	lost := Handle(full, answered(numbers(20, 25)...), "")
	require.False(t, Handled(lost, "0"))
	require.Equal(t, "5", lost[19].ID)
	require.Len(t, full, 20, "the list is not changed")
	require.Equal(t, "19", full[0].ID)
}

// D26: an id that convoy can refuse to nobody is kept whole, or in a form of its own.
func TestRequestID_D26(t *testing.T) {
	long := strings.Repeat("p", MaxRequestID)
	require.Equal(t, "build-7", RequestID("build-7"))
	require.Equal(t, long, RequestID(long))
	ids := map[string]bool{}
	for _, id := range []string{long + "one", long + "two", "a\x1b[2Jb", "a\nb", "ab", strings.Repeat("é", 200)} {
		kept := RequestID(id)
		require.LessOrEqual(t, len(kept), MaxRequestID)
		require.Equal(t, kept, RequestID(kept), "it is kept as it is from then on")
		require.Equal(t, kept, Printable(kept))
		require.True(t, utf8.ValidString(kept))
		ids[kept] = true
	}
	require.Len(t, ids, 6, "different ids stay different")
	require.Equal(t, "a[2Jb", (*Request)(nil).Join(Request{RequestedBy: "a\x1b[2Jb\n"}).RequestedBy)
}

// D26: a flood of requests is served in portions, and each portion as what was asked of all.
func TestRequests_D26_split(t *testing.T) {
	var none *Request
	first, rest := none.Split(2)
	require.Nil(t, first)
	require.Nil(t, rest)
	all := &Request{IDs: []string{"a", "b", "c"}, Force: true, RequestedBy: "ann"}
	first, rest = all.Split(3)
	require.Equal(t, all, first)
	require.Nil(t, rest)
	first, rest = all.Split(2)
	require.Equal(t, &Request{IDs: []string{"a", "b"}, Force: true, RequestedBy: "ann"}, first)
	require.Equal(t, &Request{IDs: []string{"c"}, Force: true, RequestedBy: "ann"}, rest)
	require.Len(t, all.IDs, 3)
}
