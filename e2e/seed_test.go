package e2e

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// seeded gives a test its chance, and says how to have the same one again: CONVOY_SEED.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("CONVOY_SEED"); given != "" {
		var err error
		seed, err = strconv.ParseUint(given, 10, 64)
		require.NoError(t, err, "CONVOY_SEED")
	}
	t.Logf("the same again with CONVOY_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a choice of tests
}
