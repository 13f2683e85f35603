package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// lock takes the cache's lock file, waiting for another process that builds. The kernel gives the lock back when its
// holder dies, so a lock is never left over.
func lock(ctx context.Context, file string, progress io.Writer) (unlock func(), err error) {
	handle, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the cache: %w", err)
	}
	unlock = func() { _ = handle.Close() } // closing releases the lock
	err = tryLock(handle)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		done := announce(progress, "waiting for another process that builds (lock "+file+")", time.Second)
		err = waitLock(ctx, handle)
		done(err)
	}
	if err != nil {
		unlock()
		return nil, fmt.Errorf("lock %s: %w", file, err)
	}
	return unlock, nil
}

func tryLock(handle *os.File) error {
	return syscall.Flock(int(handle.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

func waitLock(ctx context.Context, handle *os.File) error {
	again := time.NewTicker(200 * time.Millisecond)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-again.C:
			if err := tryLock(handle); !errors.Is(err, syscall.EWOULDBLOCK) {
				return err
			}
		}
	}
}
