package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// steps are the demo, in order.
var steps = []struct {
	title string
	take  func(*demo) error
}{
	{"Install convoy's kinds, and make a Release", (*demo).install},
	{"The worker sees it and syncs it: three waves, the last one waits for health", (*demo).first},
	{"A render that the cluster rejects changes nothing", (*demo).rejected},
	{"A wave gets stuck, and says why", (*demo).stuck},
	{"A newer render takes the place of the sync that waits", (*demo).fixed},
	{"What others change is put right", (*demo).drifted},
	{"What leaves the render is pruned", (*demo).pruned},
	{"A forced sync skips the dry run", (*demo).forced},
}

// everything is what the sample render of examples/shop brings.
var everything = []string{"Namespace/shop", "ConfigMap/settings", "Deployment/web", "Service/web", "ConfigMap/banner", "ConfigMap/routes"}

const allApplied = "0 Applied, 1 Applied, 2 Applied"

func (d *demo) install() error {
	if err := d.show(0, "convoy", "install"); err != nil {
		return err
	}
	if _, err := d.output("kubectl", "create", "namespace", namespace); err != nil {
		return err
	}
	if err := os.CopyFS(d.render, os.DirFS(filepath.Join(d.root, "examples", "shop", "render"))); err != nil {
		return err
	}
	sample, err := os.ReadFile(filepath.Join(d.root, "examples", "shop", "release.yaml"))
	if err != nil {
		return err
	}
	manifest := filepath.Join(d.folder, "release.yaml")
	here := strings.Replace(string(sample), "path: /renders/shop", "path: "+d.render, 1)
	if err := os.WriteFile(manifest, []byte(here), 0o600); err != nil {
		return err
	}
	return d.show(0, "kubectl", "apply", "-f", manifest)
}

func (d *demo) first() error {
	explain("Nobody asks for a sync: the Release starts itself.")
	if err := d.becomes("True/Succeeded"); err != nil {
		return err
	}
	if err := d.show(0, "convoy", "status", target); err != nil {
		return err
	}
	fmt.Println()
	return first(
		d.isApplied("True/Succeeded", allApplied),
		d.inventoryIs(everything...),
		d.field("deployment/web", ".status.readyReplicas", "2"),
		d.field("configmap/routes", ".data.version", "1.0"),
	)
}

func (d *demo) rejected() error {
	explain("A port of 99999 and a new currency: the dry run sees the first, so the second is not applied either.")
	if err := errors.Join(d.edit("10-web.yaml", "port: 80", "port: 99999"), d.edit("00-namespace.yaml", "EUR", "CHF")); err != nil {
		return err
	}
	if err := d.show(10, "convoy", "sync", target, "--wait"); err != nil {
		return err
	}
	fmt.Println()
	if err := first(
		d.isApplied("False/Unappliable", ""),
		d.field("configmap/settings", ".data.currency", "EUR"),
		d.inventoryIs(everything...),
	); err != nil {
		return err
	}
	return errors.Join(d.edit("10-web.yaml", "port: 99999", "port: 80"), d.edit("00-namespace.yaml", "CHF", "EUR"))
}

func (d *demo) stuck() error {
	explain("The web gets an image that cannot be pulled, and the routes a new version.")
	if err := errors.Join(d.edit("10-web.yaml", "shop/web:1.0", "shop/web:bad"), d.edit("20-routes.yaml", `"1.0"`, `"2.0"`)); err != nil {
		return err
	}
	if err := d.show(0, "convoy", "sync", target); err != nil {
		return err
	}
	var rel releaseView
	err := d.eventually("wave 2 waits", func() (err error) {
		if rel, err = d.release(); err == nil && rel.condition() != "False/WaitingForWave" {
			err = errors.New("Applied is " + rel.condition())
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := d.show(0, "kubectl", "get", "release", "-n", namespace, name); err != nil {
		return err
	}
	if err := errors.Join(d.show(0, "convoy", "status", target), d.show(0, "convoy", "why", target)); err != nil {
		return err
	}
	fmt.Printf("\n  In Temporal's Web UI: %s\n\n", d.ui(rel.Status.LastAttempted.RunID))
	last := rel.Status.Waves[len(rel.Status.Waves)-1]
	if len(last.BlockedBy) != 1 || last.BlockedBy[0].Object != "Deployment shop/web" {
		return fmt.Errorf("wave 2 is blocked by %v, and should be by Deployment shop/web alone", last.BlockedBy)
	}
	checked("wave 2 waits for Deployment shop/web alone: %s", last.BlockedBy[0].Message)
	return first(
		d.isApplied("False/WaitingForWave", "0 Applied, 1 Applied, 2 Waiting"),
		d.field("configmap/routes", ".data.version", "1.0"),
		d.inventoryIs(everything...),
	)
}

func (d *demo) fixed() error {
	if err := d.edit("10-web.yaml", "shop/web:bad", "shop/web:2.0"); err != nil {
		return err
	}
	waiting, err := d.release()
	if err != nil {
		return err
	}
	explain("The source changed; the next look of the loop would come within five minutes, and this asks for it now.")
	if err := d.show(0, "convoy", "reconcile", target); err != nil {
		return err
	}
	if err := d.becomes("True/Succeeded"); err != nil {
		return err
	}
	if err := d.cancelled(waiting.Status.LastAttempted.RunID); err != nil {
		return err
	}
	fmt.Println()
	return first(
		d.isApplied("True/Succeeded", allApplied),
		d.field("deployment/web", ".spec.template.spec.containers[0].image", "shop/web:2.0"),
		d.field("configmap/routes", ".data.version", "2.0"),
		d.inventoryIs(everything...),
	)
}

// becomes waits until the condition Applied is what is expected.
func (d *demo) becomes(condition string) error {
	return d.eventually("Applied becomes "+condition, func() error {
		rel, err := d.release()
		if err == nil && rel.condition() != condition {
			err = errors.New("Applied is " + rel.condition())
		}
		return err
	})
}

// cancelled requires that a sync ended as a cancelled workflow.
func (d *demo) cancelled(run string) error {
	out, err := d.output("temporal", "workflow", "describe", "--workflow-id", "sync:"+namespace+":"+name, "--run-id", run, "-o", "json")
	if err != nil {
		return err
	}
	if !strings.Contains(out, "WORKFLOW_EXECUTION_STATUS_CANCELED") {
		return fmt.Errorf("run %s, which waited, is not cancelled:\n%s", run, out)
	}
	checked("the sync that waited ended as cancelled")
	return nil
}

func (d *demo) drifted() error {
	explain("Somebody changes the currency on the cluster, and deletes the Service. A look finds both, by metadata alone.")
	if err := d.show(0, "kubectl", "patch", "configmap", "settings", "-n", "shop", "--type=merge", "-p", `{"data":{"currency":"USD"}}`); err != nil {
		return err
	}
	if err := d.show(0, "kubectl", "delete", "service", "web", "-n", "shop"); err != nil {
		return err
	}
	if err := d.show(0, "convoy", "reconcile", target); err != nil {
		return err
	}
	err := d.eventually("the drift is put right", func() error {
		rel, err := d.release()
		if err == nil && (rel.Status.LastAttempted.Result != "Succeeded") {
			err = fmt.Errorf("the last sync is %+v", rel.Status.LastAttempted)
		}
		return errors.Join(err, d.fieldIs("configmap/settings", ".data.currency", "EUR"), d.fieldIs("service/web", ".metadata.name", "web"))
	})
	if err != nil {
		return err
	}
	fmt.Println()
	return first(
		d.isApplied("True/Succeeded", allApplied),
		d.field("configmap/settings", ".data.currency", "EUR"),
		d.field("service/web", ".metadata.name", "web"),
	)
}

func (d *demo) pruned() error {
	explain("The banner leaves the render.")
	if err := os.Remove(filepath.Join(d.render, "11-banner.yaml")); err != nil {
		return err
	}
	if err := d.show(1, "convoy", "diff", target, "--path-root", d.folder); err != nil {
		return err
	}
	if err := d.show(0, "convoy", "sync", target, "--wait"); err != nil {
		return err
	}
	fmt.Println()
	left := slices.DeleteFunc(slices.Clone(everything), func(object string) bool { return object == "ConfigMap/banner" })
	return first(
		d.isApplied("True/Succeeded", allApplied),
		d.field("configmap/banner", ".metadata.name", absent),
		d.field("configmap/settings", ".data.currency", "EUR"),
		d.inventoryIs(left...),
	)
}

func (d *demo) forced() error {
	if err := d.show(0, "convoy", "sync", target, "--force", "--wait", "--requested-by", "demo"); err != nil {
		return err
	}
	fmt.Println()
	rel, err := d.release()
	if err != nil {
		return err
	}
	if last := rel.Status.LastAttempted; !last.Force || last.RequestedBy != "demo" || last.Result != "Succeeded" {
		return fmt.Errorf("status.lastAttempted is %+v, and should be forced by demo and succeeded", last)
	}
	checked("status.lastAttempted: forced, asked for by demo, Succeeded")
	types, err := d.activities(rel.Status.LastAttempted.RunID)
	if err != nil {
		return err
	}
	want := []string{"PrepareSync", "ApplyWave", "ApplyWave", "AwaitWave", "ApplyWave", "WriteInventory", "RecordSync"}
	if !slices.Equal(types, want) {
		return fmt.Errorf("the sync ran %v, and should run %v", types, want)
	}
	checked("its steps: %s", strings.Join(types, ", "))
	return d.isApplied("True/Succeeded", allApplied)
}

// activities are the types of the activities that a sync ran, in order.
func (d *demo) activities(run string) ([]string, error) {
	out, err := d.output("temporal", "workflow", "show", "--workflow-id", "sync:"+namespace+":"+name, "--run-id", run, "-o", "json")
	if err != nil {
		return nil, err
	}
	var history struct {
		Events []struct {
			Scheduled struct {
				ActivityType struct{ Name string }
			} `json:"activityTaskScheduledEventAttributes"`
		}
	}
	if err := json.Unmarshal([]byte(out), &history); err != nil {
		return nil, fmt.Errorf("the history of run %s: %w", run, err)
	}
	var types []string
	for _, event := range history.Events {
		if event.Scheduled.ActivityType.Name != "" {
			types = append(types, event.Scheduled.ActivityType.Name)
		}
	}
	return types, nil
}

// edit replaces a text in a file of the render, exactly once.
func (d *demo) edit(file, before, after string) error {
	path := filepath.Join(d.render, file)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if strings.Count(string(text), before) != 1 {
		return fmt.Errorf("%s does not hold %q once", path, before)
	}
	return os.WriteFile(path, []byte(strings.Replace(string(text), before, after, 1)), 0o600)
}

// first is the first error.
func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
