package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"convoy.dev/convoy/dev/run/stack"
)

// patience bounds every wait. It is only used up by a failure.
const patience = 2 * time.Minute

// command is a program that works on the stack: convoy, kubectl or temporal.
func (d *demo) command(program string, arguments ...string) *exec.Cmd {
	path := map[string]string{
		"convoy": filepath.Join(d.folder, "bin", "convoy"), "kubectl": d.stack.Kubectl, "temporal": d.stack.Temporal,
	}[program]
	command := stack.Command(d.ctx, path, arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+d.stack.Kubeconfig, "TEMPORAL_ADDRESS="+d.stack.TemporalAddress,
		"TEMPORAL_NAMESPACE=default", "CONVOY_KUBECONFIG=", "CONVOY_TEMPORAL_ADDRESS=", "CONVOY_TEMPORAL_NAMESPACE=", "CONVOY_TASK_QUEUE=")
	return command
}

// output runs a program and returns what it prints.
func (d *demo) output(program string, arguments ...string) (string, error) {
	command := d.command(program, arguments...)
	var out, said bytes.Buffer
	command.Stdout, command.Stderr = &out, &said
	if err := command.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w\n%s", program, strings.Join(arguments, " "), err, said.String())
	}
	return out.String(), nil
}

// show runs a program as a person would, and requires its exit code.
func (d *demo) show(code int, program string, arguments ...string) error {
	fmt.Printf("\n  $ %s %s\n", program, strings.Join(arguments, " "))
	command := d.command(program, arguments...)
	out := &indented{start: true}
	command.Stdout, command.Stderr = out, out
	err := command.Run()
	var exit *exec.ExitError
	switch {
	case d.ctx.Err() != nil:
		return context.Cause(d.ctx)
	case err != nil && !errors.As(err, &exit):
		return err
	case command.ProcessState.ExitCode() != code:
		return fmt.Errorf("%s %s ended with exit code %d, and should with %d", program, strings.Join(arguments, " "),
			command.ProcessState.ExitCode(), code)
	}
	return nil
}

// indented writes to the standard output, each line indented.
type indented struct{ start bool }

func (w *indented) Write(p []byte) (int, error) {
	for _, b := range p {
		if w.start {
			fmt.Print("    ")
		}
		fmt.Printf("%c", b)
		w.start = b == '\n'
	}
	return len(p), nil
}

// get reads an object of the cluster into a value; found is false when it is absent.
func (d *demo) get(into any, arguments ...string) (found bool, err error) {
	out, err := d.output("kubectl", append([]string{"get", "--ignore-not-found", "-o", "json"}, arguments...)...)
	if err != nil || out == "" {
		return false, err
	}
	return true, json.Unmarshal([]byte(out), into)
}

// eventually tries until check returns nil.
func (d *demo) eventually(what string, check func() error) error {
	ctx, cancel := context.WithTimeout(d.ctx, patience)
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-d.ctx.Done():
			return context.Cause(d.ctx)
		case <-ctx.Done():
			return fmt.Errorf("waited for: %s: %w", what, err)
		case <-tick.C:
		}
	}
}

// checked tells what was verified.
func checked(format string, args ...any) { fmt.Printf("  \033[32m✓\033[0m "+format+"\n", args...) }

func explain(text string) { fmt.Printf("  %s\n", strings.ReplaceAll(text, "\n", "\n  ")) }
