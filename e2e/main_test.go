// Package e2e tests the whole system: the worker as a process, a real Temporal server, and a real API server that is
// the control cluster and the target cluster at once.
package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"convoy.dev/convoy/internal/teststack"
)

// binaries are built once for the whole package.
var binaries struct {
	dir    string
	worker string
	convoy string
	smoke  string // examples/hook-workflow
}

// auditLog is where the stack that this package starts writes the audit log of the API server.
var auditLog string

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "convoy-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binaries.dir = dir
	binaries.worker = filepath.Join(dir, "worker")
	binaries.convoy = filepath.Join(dir, "convoy")
	auditLog = filepath.Join(dir, "audit.log")
	binaries.smoke = filepath.Join(dir, "smoke")
	for binary, pkg := range map[string]string{
		binaries.worker: "../worker", binaries.convoy: "../starter", binaries.smoke: "../examples/hook-workflow",
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
		out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, pkg).CombinedOutput()
		cancel()
		if err != nil {
			fmt.Fprintf(os.Stderr, "build %s: %v\n%s", pkg, err, out)
			return 1
		}
	}
	teststack.Arguments = []string{"--ui=false", "--audit-log", auditLog}
	defer teststack.Stop()
	defer stopSharedWorker()
	return m.Run()
}
