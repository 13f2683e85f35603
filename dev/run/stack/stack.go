// Package stack starts the embedded stack as a child process and ends it. What the stack consists of is the business
// of dev/build and dev/stack.
package stack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// Endpoints tells where the parts of a running stack are; dev/README.md explains the fields.
type Endpoints struct {
	Kubeconfig      string `json:"kubeconfig"`
	Kubectl         string `json:"kubectl"`
	Temporal        string `json:"temporal"`
	TemporalAddress string `json:"temporalAddress"`
	UIURL           string `json:"uiURL"`
	LogDir          string `json:"logDir"`
	AuditLog        string `json:"auditLog"`
	BinDir          string `json:"binDir"`
}

// Stack is a running stack.
type Stack struct {
	Endpoints

	command *exec.Cmd
	stdin   io.Closer
	ended   chan struct{}
}

// The time a stack with built programs takes to start and to end is seconds; these bound a stack that hangs.
const (
	startFor = 3 * time.Minute
	endFor   = 45 * time.Second
)

// Root finds the clone from the working folder upwards.
func Root() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(folder, "dev", "build", "go.mod")); err == nil {
			return folder, nil
		}
		above := filepath.Dir(folder)
		if above == folder {
			return "", errors.New("run this inside a clone of convoy")
		}
		folder = above
	}
}

// Build makes the programs of the stack that are missing, with progress on the standard error. The first time takes
// many minutes.
func Build(ctx context.Context, root string) error {
	command := Command(ctx, "go", "run", "-C", filepath.Join(root, "dev", "build"), ".", "ensure")
	command.Stderr = os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("build the embedded stack: %w", err)
	}
	return nil
}

// Start starts a stack with built programs and waits until every part is ready. It ends when this process does,
// however that comes about: its standard input is a pipe that this process holds.
func Start(ctx context.Context, root string, flags ...string) (*Stack, error) {
	arguments := append([]string{"run", "-C", filepath.Join(root, "dev", "build"), ".", "up", "--stdin"}, flags...)
	// Not bound to ctx: the stack outlives an interrupt until those that use it have ended.
	command := exec.Command("go", arguments...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	s := &Stack{command: command, stdin: stdin, ended: make(chan struct{})}
	line := make(chan []byte, 1)
	go func() {
		said, _ := bufio.NewReader(stdout).ReadBytes('\n')
		line <- said
		_ = command.Wait()
		close(s.ended)
	}()
	select {
	case said := <-line:
		if err = json.Unmarshal(said, &s.Endpoints); err != nil {
			err = errors.New("it ended during the start; what it said stands above")
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(startFor):
		err = fmt.Errorf("not ready after %s", startFor)
	}
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("start the embedded stack: %w", err)
	}
	return s, nil
}

// Stop ends the stack and everything it started.
func (s *Stack) Stop() {
	_ = s.stdin.Close()
	select {
	case <-s.ended:
	case <-time.After(endFor):
		_ = syscall.Kill(-s.command.Process.Pid, syscall.SIGKILL)
	}
}

// Command is a child with a process group of its own: when ctx ends, the whole group is told to, and killed when it
// does not.
func Command(ctx context.Context, name string, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, name, arguments...)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error {
		group := -command.Process.Pid
		time.AfterFunc(10*time.Second, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
		return syscall.Kill(group, syscall.SIGTERM)
	}
	command.WaitDelay = 15 * time.Second
	return command
}
