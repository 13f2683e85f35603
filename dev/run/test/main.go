// Command test runs the tests of every module of the clone. Those of the product share one embedded stack, which is
// ended at the end, whatever the end is. The output is that of go test; a summary closes it.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"convoy.dev/convoy/dev/run/stack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	var r run
	flag.StringVar(&r.packages, "packages", "./...", "packages of the product to test, separated by spaces")
	flag.BoolVar(&r.modules, "modules", true, "when all packages are tested, test the modules of dev/ too")
	flag.Parse()
	r.flags = flag.Args()
	err := r.all(ctx)
	stop()
	r.summary(err)
	if err != nil {
		os.Exit(1)
	}
}

// run is one run of the tests.
type run struct {
	packages string
	modules  bool
	flags    []string // for go test

	root    string
	results []result
}

// result is what became of one module.
type result struct {
	module             string
	passed, failed, no int // packages: passed, failed, without tests
	took               time.Duration
	err                error
}

// devModules are the modules of dev/ that have tests. dev/stack and dev/browser start stacks of their own.
var devModules = []string{"dev/run", "dev/build", "dev/stack", "dev/browser"}

func (r *run) all(ctx context.Context) error {
	root, err := stack.Root()
	if err != nil {
		return err
	}
	r.root = root
	say("building what is missing of the embedded stack")
	if err := stack.Build(ctx, root); err != nil {
		return err
	}
	errs := []error{r.product(ctx)}
	if r.modules && r.packages == "./..." && len(r.flags) == 0 {
		for _, module := range devModules {
			if ctx.Err() == nil {
				errs = append(errs, r.test(ctx, module, []string{"./..."}, nil))
			}
		}
	}
	if ctx.Err() != nil {
		errs = append(errs, context.Cause(ctx))
	}
	return errors.Join(errs...)
}

// product tests the packages of the product over one stack. The logs of a stack whose tests failed stay.
func (r *run) product(ctx context.Context) (err error) {
	folder, err := os.MkdirTemp("", "convoy-test-")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			_ = os.RemoveAll(folder)
			return
		}
		say("the logs of the stack and its audit log are in %s", folder)
	}()
	say("starting the embedded stack")
	endpoints := filepath.Join(folder, "endpoints.json")
	s, err := stack.Start(ctx, r.root, "--ui=false", "--endpoints", endpoints,
		"--log-dir", filepath.Join(folder, "logs"), "--audit-log", filepath.Join(folder, "audit.log"))
	if err != nil {
		return err
	}
	defer s.Stop()
	return r.test(ctx, ".", strings.Fields(r.packages), []string{"CONVOY_TEST_STACK=" + endpoints})
}

// test runs go test in one module.
func (r *run) test(ctx context.Context, module string, packages, env []string) error {
	say("go test in %s", module)
	// Two packages at a time keep two cores busy; more only makes waits run into their bounds.
	arguments := append([]string{"test", "-count=1", "-p", "2", "-timeout", "40m"}, r.flags...)
	command := stack.Command(ctx, "go", append(arguments, packages...)...)
	command.Dir = filepath.Join(r.root, module)
	command.Env = append(os.Environ(), env...)
	counted := &counter{next: os.Stdout}
	command.Stdout, command.Stderr = counted, os.Stderr
	began := time.Now()
	err := command.Run()
	counted.flush()
	r.results = append(r.results, result{
		module: module, passed: counted.passed, failed: counted.failed, no: counted.none, took: time.Since(began), err: err,
	})
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("the tests of %s failed", module)
	}
	return err
}

// summary says what was tested and what came of it.
func (r *run) summary(err error) {
	for _, result := range r.results {
		verdict := "ok"
		if result.err != nil {
			verdict = "FAILED"
		}
		say("%-10s %-6s %d packages passed, %d failed, %d without tests, %s", result.module, verdict,
			result.passed, result.failed, result.no, result.took.Round(time.Second))
	}
	if err != nil {
		say("FAILED: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	say("all tests passed")
}

func say(format string, args ...any) { fmt.Printf("== "+format+"\n", args...) }

// counter passes the output of go test on and counts its closing lines.
type counter struct {
	next                 io.Writer
	rest                 []byte
	passed, failed, none int
}

func (c *counter) Write(p []byte) (int, error) {
	c.rest = append(c.rest, p...)
	if end := bytes.LastIndexByte(c.rest, '\n'); end >= 0 {
		c.count(c.rest[:end])
		c.rest = bytes.Clone(c.rest[end+1:])
	}
	return c.next.Write(p)
}

func (c *counter) flush() { c.count(c.rest) }

func (c *counter) count(lines []byte) {
	scanner := bufio.NewScanner(bytes.NewReader(lines))
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		switch line := scanner.Text(); {
		case strings.HasPrefix(line, "ok  \t"):
			c.passed++
		case strings.HasPrefix(line, "FAIL\t"):
			c.failed++
		case strings.HasPrefix(line, "?   \t"):
			c.none++
		}
	}
}
