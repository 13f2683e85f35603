package activities

import (
	"errors"
	"fmt"
	"testing"

	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
)

// D30: the cache knows files by name, order and content, remembers no failure, and is bounded.
func TestDigestCache_D30(t *testing.T) {
	c := newDigestCache()
	parsed := 0
	of := func(err error, files ...string) string {
		var list []release.File
		for i := 0; i+1 < len(files); i += 2 {
			list = append(list, release.File{Name: files[i], Data: []byte(files[i+1])})
		}
		digest, failed := c.of(list, func() (string, error) { parsed++; return fmt.Sprintf("digest %d", parsed), err })
		require.Equal(t, err, failed)
		return digest
	}
	seen := map[string]bool{}
	for _, files := range [][]string{{"a", "x"}, {"b", "x"}, {"a", "y"}, {"a", "x", "b", "y"}, {"b", "y", "a", "x"}, {"a", ""}, {"a", "x1:b,1:y"}, {"ab", "x"}, {}} {
		digest := of(nil, files...)
		require.False(t, seen[digest], "%v", files)
		seen[digest] = true
		require.Equal(t, digest, of(nil, files...), "it is remembered")
	}
	of(errors.New("no"), "bad", "x")
	before := parsed
	of(errors.New("no"), "bad", "x")
	require.Equal(t, before+1, parsed, "a failure is not remembered")
	for i := range maxDigests + 10 {
		of(nil, "a", fmt.Sprintf("many %d", i))
	}
	require.LessOrEqual(t, len(c.digest), maxDigests)
}
