package activities

import (
	"crypto/sha256"
	"fmt"
	"sync"

	"convoy.dev/convoy/internal/release"
)

// digestCache remembers which files gave which digest, so that a pass over an unchanged source parses nothing. Files
// that gave no render are not remembered.
type digestCache struct {
	mu     sync.Mutex
	digest map[[sha256.Size]byte]string
}

// maxDigests bounds the cache: about a megabyte.
const maxDigests = 10_000

func newDigestCache() *digestCache { return &digestCache{digest: map[[sha256.Size]byte]string{}} }

// of returns the digest of files, and asks render for it when they are new.
func (c *digestCache) of(files []release.File, render func() (string, error)) (string, error) {
	hash := sha256.New()
	for _, file := range files {
		fmt.Fprintf(hash, "%d:%s,%d:", len(file.Name), file.Name, len(file.Data))
		hash.Write(file.Data)
	}
	key := [sha256.Size]byte(hash.Sum(nil))
	c.mu.Lock()
	digest, known := c.digest[key]
	c.mu.Unlock()
	if known {
		return digest, nil
	}
	digest, err := render()
	if err != nil {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.digest) >= maxDigests {
		clear(c.digest)
	}
	c.digest[key] = digest
	return digest, nil
}
