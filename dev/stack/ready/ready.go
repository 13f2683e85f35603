// Package ready waits for the parts of the stack.
package ready

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// every is the pause between two checks.
const every = 50 * time.Millisecond

// Await repeats the check until it succeeds. When the context ends first, the error holds its cause and what the last
// check said.
func Await(ctx context.Context, check func(context.Context) error) error {
	again := time.NewTicker(every)
	defer again.Stop()
	for {
		err := attempt(ctx, check)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready (%v): %w", err, context.Cause(ctx))
		case <-again.C:
		}
	}
}

// attempt bounds one check, so that a part that accepts a connection and then says nothing does not stop the waiting.
func attempt(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return check(ctx)
}

// OK succeeds when a GET of the URL is answered with status 200.
func OK(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 300))
		return fmt.Errorf("GET %s: %s %s", url, response.Status, body)
	}
	return nil
}
