// Package process starts the programs of the stack as child processes that cannot outlive this one, and keeps what
// they print in log files.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// errorLines is how many of the last log lines an error shows.
const errorLines = 15

// Process is a started child.
type Process struct {
	Name    string
	LogFile string

	command Command
	done    chan struct{} // closed when the child has ended and is not started again
	end     error         // how it ended; read after done

	mu       sync.Mutex
	cmd      *exec.Cmd
	stopping bool
}

// Command says what to start.
type Command struct {
	Path   string // the program; its base name is also the name of the process
	Args   []string
	Env    []string // in addition to this process's environment
	LogDir string   // receives NAME.log
	// Restart starts the child again, the same in everything, when it ends by itself.
	Restart bool
}

// restartAfter is the pause before a child is started again.
const restartAfter = 200 * time.Millisecond

// Start starts a child in a process group of its own, so that Ctrl-C reaches only devstack, which ends the parts in order.
func Start(command Command) (*Process, error) {
	name := filepath.Base(command.Path)
	p := &Process{
		Name: name, LogFile: filepath.Join(command.LogDir, name+".log"), command: command, done: make(chan struct{}),
	}
	if err := p.launch(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		for {
			p.end = p.cmd.Wait()
			if !command.Restart || !p.again() {
				return
			}
		}
	}()
	return p, nil
}

// again starts a child that has ended once more, unless it is to stay ended.
func (p *Process) again() bool {
	time.Sleep(restartAfter)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return false
	}
	if err := p.launch(); err != nil {
		p.end = err
		return false
	}
	return true
}

func (p *Process) launch() error {
	log, err := os.OpenFile(p.LogFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	defer func() { _ = log.Close() }() // the child has its own copy

	p.cmd = exec.Command(p.command.Path, p.command.Args...)
	p.cmd.Env = append(os.Environ(), p.command.Env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(p.cmd.SysProcAttr)
	if err := onLastingThread(p.cmd.Start); err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	return nil
}

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err says how a child ended that should have gone on, with the end of its log.
func (p *Process) Err() error {
	end := p.end
	if end == nil {
		end = errors.New("exit status 0")
	}
	return fmt.Errorf("%s ended by itself: %w; %s", p.Name, end, p.LastLines())
}

// LastLines quotes the end of the log and names its file.
func (p *Process) LastLines() string {
	content, err := os.ReadFile(p.LogFile)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	lines = lines[max(0, len(lines)-errorLines):]
	return fmt.Sprintf("last lines of %s:\n  %s", p.LogFile, strings.Join(lines, "\n  "))
}

// While returns a context that ends, with Err as its cause, when the child ends.
func (p *Process) While(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-p.done:
			cancel(p.Err())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Stop ends the child and waits for it: politely for as long as patience lasts, then by force.
func (p *Process) Stop(patience time.Duration) {
	p.mu.Lock()
	p.stopping = true
	child := p.cmd.Process
	p.mu.Unlock()
	if patience > 0 {
		_ = child.Signal(syscall.SIGTERM) // fails only when it has ended already
		select {
		case <-p.done:
			return
		case <-time.After(patience):
		}
	}
	_ = child.Kill()
	<-p.done
}

// onLastingThread runs start on one operating system thread that never ends. The death signal of a child is sent when
// the thread that made it ends, and the Go runtime may end any other thread.
func onLastingThread(start func() error) error {
	result := make(chan error)
	starts <- func() { result <- start() }
	return <-result
}

var starts = make(chan func())

func init() {
	go func() {
		runtime.LockOSThread()
		for start := range starts {
			start()
		}
	}()
}
