package release

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCountAndVerb(t *testing.T) {
	for n, says := range map[int]string{0: "0 objects stay", 1: "1 object stays", 2: "2 objects stay"} {
		require.Equal(t, says, Count(n, "object")+" "+Verb(n, "stays", "stay"))
	}
}
