package cache

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// failureLines is how much of the compiler's output an error shows. The log file holds all of it.
const failureLines = 30

// goBuild compiles one program with the go command.
func goBuild(ctx context.Context, build Build) error {
	log, err := os.Create(build.Log)
	if err != nil {
		return fmt.Errorf("build %s: %w", build.Name, err)
	}
	defer func() { _ = log.Close() }()

	args := append([]string{"build"}, build.flags(build.Version)...)
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", build.Output, build.Package)...)
	cmd.Dir = build.Folder
	cmd.Env = append(os.Environ(), "GOWORK=off")
	cmd.Stdout, cmd.Stderr = log, log
	// A group of its own, so that an interrupt also ends the compilers that the go command has started.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("build %s: stopped: %w", build.Name, context.Cause(ctx))
		}
		return fmt.Errorf("build %s %s in %s: %w\n%s\nwhole output: %s",
			build.Name, build.Version, build.Folder, err, tail(build.Log, failureLines), build.Log)
	}
	return nil
}

// tail returns the last lines of a file, indented.
func tail(file string, lines int) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return "  (" + err.Error() + ")"
	}
	all := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "  " + strings.Join(all, "\n  ")
}
