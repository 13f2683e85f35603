package main

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"

	"convoy.dev/convoy/deploy/crds"
	"convoy.dev/convoy/internal/k8s"
	"convoy.dev/convoy/internal/preview"
	"convoy.dev/convoy/internal/release"

	"github.com/spf13/cobra"
)

const longInstall = `Install what convoy needs: its CustomResourceDefinitions on the control cluster, and its search attributes in the
Temporal namespace. It can be repeated at any time: what is there already stays as it is.

Syncs run without the search attributes too; with them Temporal finds the syncs of a Release or of a Cluster.`

func (p *program) installCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:               "install",
		GroupID:           groupSetUp,
		Short:             "Install convoy's kinds and search attributes; repeatable",
		Long:              longInstall,
		Example:           "  convoy install --dry-run\n  convoy install --temporal-address temporal.example.com:7233",
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: does(func(ctx context.Context, _ []string) error {
			if err := p.installDefinitions(ctx, dryRun); err != nil {
				return err
			}
			if err := p.installSearchAttributes(ctx, dryRun); err != nil {
				return ofSearchAttributes(asFailure(ctx, err), dryRun)
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what would be installed, and change nothing")
	return cmd
}

// ofSearchAttributes says what is in already when Temporal's part fails.
func ofSearchAttributes(failed *failure, dryRun bool) *failure {
	if !dryRun && failed.code != exitInterrupted {
		failed.message += "; the CustomResourceDefinitions are installed, the search attributes are not: run `convoy install` again"
	}
	return failed
}

// definitions are the CustomResourceDefinitions of this binary.
func definitions() (*release.Render, error) {
	names, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil {
		return nil, err
	}
	var files []release.File
	for _, name := range names {
		data, err := crds.Files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, release.File{Name: name, Data: data})
	}
	return release.Parse(files)
}

// installer puts CustomResourceDefinitions on a cluster.
type installer struct {
	*program
	session *k8s.Session
	whole   *preview.WholeObjects
}

func (p *program) installDefinitions(ctx context.Context, dryRun bool) error {
	cfg, err := p.clusterConfig()
	if err != nil {
		return err
	}
	in := installer{program: p}
	cluster, err := k8s.NewPool().Connect(cfg)
	if err != nil {
		return err
	}
	in.session = cluster.Session(k8s.SessionOptions{RetryFor: 8 * time.Second})
	if in.whole, err = preview.NewWholeObjects(cfg, in.session); err != nil {
		return err
	}
	render, err := definitions()
	if err != nil {
		return err
	}
	var names []string
	for i := range render.Objects {
		obj := &render.Objects[i]
		if err := in.install(ctx, obj, obj.Ref(false), dryRun); err != nil {
			return fmt.Errorf("install CustomResourceDefinition %s at %s: %w", obj.Name, cfg.Host, err)
		}
		names = append(names, obj.Name)
	}
	if dryRun {
		return nil
	}
	return in.session.AwaitEstablished(ctx, names)
}

// install applies one definition and says what that changed.
func (in installer) install(ctx context.Context, obj *release.Object, ref release.ObjectRef, dryRun bool) error {
	live, err := in.session.Read(ctx, ref)
	if err != nil {
		return err
	}
	var difference preview.Difference
	if live != nil {
		if difference, err = in.whole.Difference(ctx, obj, ref); err != nil {
			return err
		}
	}
	ask := in.session.Apply
	if dryRun {
		ask = in.session.DryRun
	}
	if _, err := ask(ctx, obj, ref); err != nil {
		return err
	}
	in.printf("customresourcedefinition %s %s", ref.Name, done(live == nil, difference.Changed(), dryRun))
	return nil
}

// done is the word for what became of something that is installed.
func done(created, changed, dryRun bool) string {
	word := "unchanged"
	switch {
	case created:
		word = "created"
	case changed:
		word = "updated"
	}
	if dryRun && word != "unchanged" {
		return "would be " + word
	}
	return word
}

// installSearchAttributes registers what is missing, and makes sure that what is there has the right type: adding one
// that exists succeeds whatever its type.
func (p *program) installSearchAttributes(ctx context.Context, dryRun bool) error {
	t, err := p.dialTemporal(ctx)
	if err != nil {
		return err
	}
	defer t.Close()
	before, err := t.searchAttributes(ctx)
	if err != nil {
		return err
	}
	var missing []string
	for _, name := range slices.Sorted(maps.Keys(searchAttributes)) {
		if _, known := before[name]; !known {
			missing = append(missing, name)
		}
	}
	after := before
	if len(missing) > 0 && !dryRun {
		if err := t.addSearchAttributes(ctx, missing); err != nil {
			return err
		}
		if after, err = t.searchAttributes(ctx); err != nil {
			return err
		}
	}
	if err := checkTypes(after, t.namespace); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(searchAttributes)) {
		p.printf("search attribute %s (%s) %s", name, searchAttributes[name], done(slices.Contains(missing, name), false, dryRun))
	}
	return nil
}
