package main

import (
	"context"
	"io"

	"convoy.dev/convoy/api/v1alpha1"

	"github.com/spf13/cobra"
)

func (p *program) inventoryCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:     "inventory NAMESPACE/NAME",
		GroupID: groupLook,
		Short:   "List the objects that convoy manages for a Release",
		Long: `List the objects that convoy has applied for a Release, in the order of application.

An object that is pending was about to be applied when its sync last wrote the inventory: the next sync looks whether
it was.`,
		Example:           "  convoy inventory team-a/shop\n  convoy inventory team-a/shop -o json | jq -r '.spec.objects[].name'",
		Args:              oneRelease,
		ValidArgsFunction: p.completeRelease,
		RunE: does(func(ctx context.Context, args []string) error {
			if err := checkFormat(format); err != nil {
				return err
			}
			cluster, rel, err := p.readRelease(ctx, args[0])
			if err != nil {
				return err
			}
			inv, err := cluster.Inventory(ctx, rel)
			if err != nil {
				return err
			}
			if format != "" {
				return encode(p.stdout, format, plainInventory(inv))
			}
			if len(inv.Spec.Objects)+len(inv.Spec.Pending) == 0 {
				p.printf("convoy manages no object for Release %s: it was not synced yet, or its render is empty.", args[0])
				return nil
			}
			printInventory(p.stdout, inv)
			return nil
		}),
	}
	outputFlag(cmd, &format)
	return cmd
}

// plainInventory leaves out what only machines read.
func plainInventory(inv *v1alpha1.ReleaseInventory) *v1alpha1.ReleaseInventory {
	out := inv.DeepCopy()
	out.ManagedFields = nil
	out.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ReleaseInventory"))
	return out
}

func printInventory(w io.Writer, inv *v1alpha1.ReleaseInventory) {
	rows := [][]string{{"GROUP", "KIND", "NAMESPACE", "NAME", "STATE"}}
	add := func(records []v1alpha1.ObjectRecord, state string) {
		for _, r := range records {
			rows = append(rows, []string{orDash(r.Group), r.Kind, orDash(r.Namespace), r.Name, state})
		}
	}
	add(inv.Spec.Objects, "applied")
	add(inv.Spec.Pending, "pending")
	table(w, "", rows)
}
