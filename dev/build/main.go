// Command build builds the programs of the embedded stack into the user's cache folder and runs them from there. It is
// called as `go run -C dev/build . COMMAND`.
//
// It knows nothing about the stack's options: `up` hands them to devstack.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"convoy.dev/convoy/dev/build/cache"
)

const usage = `usage: go run -C dev/build . COMMAND

  ensure            build what is missing; print the folder and the path of each program as JSON
  exec NAME ARG...  run one program, building it when it is missing
  up FLAG...        start the embedded stack; up --help shows its flags

Progress goes to the standard error. What is built stays in the user's cache folder.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dev/build:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "--help"}, args[0]) {
		fmt.Fprint(os.Stderr, usage)
		return nil
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	dev, err := cache.FindDev(here)
	if err != nil {
		return err
	}
	programs, err := cache.New(dev, os.Stderr)
	if err != nil {
		return err
	}
	switch command, rest := args[0], args[1:]; command {
	case "ensure":
		return ensure(ctx, programs)
	case "exec":
		return execute(ctx, programs, rest)
	case "up":
		return up(ctx, programs, rest)
	default:
		return fmt.Errorf("unknown command %q\n%s", command, usage)
	}
}

func ensure(ctx context.Context, programs *cache.Cache) error {
	set, err := programs.Ensure(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(set)
}

func execute(ctx context.Context, programs *cache.Cache, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("exec needs the name of a program: %v", cache.Names())
	}
	path, err := programs.EnsureOne(ctx, args[0])
	if err != nil {
		return err
	}
	return replaceWith(path, args[1:])
}

// up builds what is missing and becomes devstack, so that signals and the standard input reach it directly.
func up(ctx context.Context, programs *cache.Cache, args []string) error {
	set, err := programs.Ensure(ctx)
	if err != nil {
		return err
	}
	flags := append([]string{"--bin-dir", set.BinDir}, fromEnvironment(os.Getenv, args)...)
	return replaceWith(set.Programs["devstack"], append(flags, args...))
}

// fromEnvironment turns the parts a person has named in the environment into flags. Under --stdin a test is the
// caller; it must not meet a cluster that merely happens to be set in somebody's shell, so it has to pass the flag.
func fromEnvironment(getenv func(string) string, args []string) []string {
	test := slices.Contains(args, "--stdin") || slices.Contains(args, "-stdin")
	var flags []string
	for _, part := range []struct{ variable, flag, instead string }{
		{"KUBECONFIG", "kubeconfig", "a control plane"},
		{"TEMPORAL_ADDRESS", "temporal-address", "a Temporal server"},
	} {
		value := getenv(part.variable)
		flagged := slices.ContainsFunc(args, func(arg string) bool {
			return strings.HasPrefix(strings.TrimLeft(arg, "-"), part.flag)
		})
		switch {
		case value == "" || flagged:
		case test:
			fmt.Fprintf(os.Stderr, "ignoring %s=%s under --stdin; pass --%s to use it\n", part.variable, value, part.flag)
		default:
			fmt.Fprintf(os.Stderr, "using %s=%s instead of starting %s; unset it to start one\n",
				part.variable, value, part.instead)
			flags = append(flags, "--"+part.flag, value)
		}
	}
	return flags
}

func replaceWith(path string, args []string) error {
	err := syscall.Exec(path, append([]string{path}, args...), os.Environ())
	return errors.Join(fmt.Errorf("run %s", path), err)
}
