// Command demo shows convoy at work: it starts the embedded stack and a worker, watches a Release sync itself, lets a wave get
// stuck, lets a newer render take its place, undoes what somebody changed, prunes an object and forces a sync. Every step checks its exact outcome. It stays up until Ctrl-C, so that
// one can look around; with DEMO_EXIT=1 it ends by itself, with exit code 0 only when every step came out right.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"convoy.dev/convoy/dev/run/stack"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	d := &demo{ctx: ctx, stay: os.Getenv("DEMO_EXIT") != "1"}
	err := d.run()
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: FAILED: %v\n", err)
		os.Exit(1)
	}
}

// demo is one run.
type demo struct {
	ctx  context.Context
	stay bool

	root   string
	folder string // everything this run writes
	render string // the directory that the Release takes its manifests from
	stack  *stack.Stack
	worker *worker
}

const (
	namespace = "team-a"
	name      = "shop"
	target    = namespace + "/" + name
)

// run prepares everything, takes the steps, and takes everything down again.
func (d *demo) run() (err error) {
	if d.root, err = stack.Root(); err != nil {
		return err
	}
	if d.folder, err = os.MkdirTemp("", "convoy-demo-"); err != nil {
		return err
	}
	d.render = filepath.Join(d.folder, "render")
	defer func() {
		if err != nil {
			fmt.Printf("\nThe logs are in %s\n", d.folder)
			return
		}
		_ = os.RemoveAll(d.folder)
	}()
	if err := d.prepare(); err != nil {
		return err
	}
	defer d.stack.Stop()
	if err := d.startWorker(); err != nil {
		return err
	}
	defer d.worker.stop()
	for i, step := range steps {
		fmt.Printf("\n\033[1m%d/%d  %s\033[0m\n", i+1, len(steps), step.title)
		if err := step.take(d); err != nil {
			return fmt.Errorf("step %d (%s): %w", i+1, step.title, err)
		}
	}
	d.end()
	return nil
}

// prepare builds what is missing and starts the stack.
func (d *demo) prepare() error {
	fmt.Println("convoy's demo: a Kubernetes control plane and a Temporal server on this machine, and convoy at work on them.")
	fmt.Println("The first time they are compiled, which takes many minutes; afterwards a start takes seconds.")
	fmt.Println()
	if err := stack.Build(d.ctx, d.root); err != nil {
		return err
	}
	for program, source := range map[string]string{"convoy": "./starter", "worker": "./worker"} {
		fmt.Printf("building %s\n", program)
		build := stack.Command(d.ctx, "go", "build", "-o", filepath.Join(d.folder, "bin", program), source)
		build.Dir, build.Stderr = d.root, os.Stderr
		if err := build.Run(); err != nil {
			return fmt.Errorf("build %s: %w", program, err)
		}
	}
	fmt.Println("starting Kubernetes and Temporal")
	var err error
	d.stack, err = stack.Start(d.ctx, d.root, "--log-dir", filepath.Join(d.folder, "logs"))
	return err
}

// end tells what to look at, and waits for Ctrl-C.
func (d *demo) end() {
	fmt.Println("\n\033[1mEvery step came out as it should.\033[0m")
	if !d.stay {
		return
	}
	fmt.Printf(`
All of it stays up until Ctrl-C. Look at the syncs in Temporal's Web UI:

  %s

or go on by hand, in another terminal:

  export KUBECONFIG=%s TEMPORAL_ADDRESS=%s
  export PATH=%s:%s:$PATH
  convoy status %s
  kubectl get releases -A
  $EDITOR %s/*.yaml && convoy diff %s --path-root %s; convoy sync %s --wait
`, d.ui(""), d.stack.Kubeconfig, d.stack.TemporalAddress, filepath.Join(d.folder, "bin"), d.stack.BinDir,
		target, d.render, target, d.folder, target)
	<-d.ctx.Done()
	fmt.Println("\nending")
}

// ui is the address of a workflow in Temporal's Web UI; of the list of all when run is empty.
func (d *demo) ui(run string) string {
	address := d.stack.UIURL + "/namespaces/default/workflows"
	if run == "" {
		return address
	}
	return address + "/" + strings.ReplaceAll("sync:"+namespace+":"+name, ":", "%3A") + "/" + run
}
