package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// releaseView is what the demo checks of a Release.
type releaseView struct {
	Status struct {
		Conditions []struct {
			Type, Status, Reason, Message string
		}
		LastAttempted struct {
			Result, RunID, RequestedBy string
			Force                      bool
		}
		LastSuccessful struct{ Digest string }
		Waves          []waveView
		Unverified     []string
		History        []struct{ Digest string }
	}
}

type waveView struct {
	Wave      int
	Phase     string
	BlockedBy []struct{ Object, Message string }
}

func (d *demo) release() (releaseView, error) {
	var rel releaseView
	found, err := d.get(&rel, "release", "-n", namespace, name)
	if err == nil && !found {
		err = errors.New("there is no Release " + target)
	}
	return rel, err
}

// condition is "Status/Reason" of the condition Applied.
func (r releaseView) condition() string {
	for _, c := range r.Status.Conditions {
		if c.Type == "Applied" {
			return c.Status + "/" + c.Reason
		}
	}
	return "none"
}

// phases are the phases of all waves: "0 Applied, 1 Applied".
func (r releaseView) phases() string {
	var phases []string
	for _, wave := range r.Status.Waves {
		phases = append(phases, fmt.Sprintf("%d %s", wave.Wave, wave.Phase))
	}
	return strings.Join(phases, ", ")
}

// isApplied requires condition and phases.
func (d *demo) isApplied(condition, phases string) error {
	rel, err := d.release()
	if err != nil {
		return err
	}
	if rel.condition() != condition {
		return fmt.Errorf("Applied is %s, and should be %s", rel.condition(), condition)
	}
	if rel.phases() != phases {
		return fmt.Errorf("the waves are %q, and should be %q", rel.phases(), phases)
	}
	checked("Applied is %s; waves: %s", condition, phases)
	return nil
}

// inventoryIs requires exactly these records: "Kind/name".
func (d *demo) inventoryIs(want ...string) error {
	var inventory struct {
		Spec struct {
			Objects []struct{ Kind, Name string }
			Pending []struct{ Kind, Name string }
		}
	}
	if _, err := d.get(&inventory, "releaseinventory", "-n", namespace, name); err != nil {
		return err
	}
	got := []string{}
	for _, object := range inventory.Spec.Objects {
		got = append(got, object.Kind+"/"+object.Name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || len(inventory.Spec.Pending) > 0 {
		return fmt.Errorf("the inventory holds %v (pending: %v), and should hold exactly %v", got, inventory.Spec.Pending, want)
	}
	checked("the inventory holds exactly %s", strings.Join(want, ", "))
	return nil
}

// field requires one field of an object in the namespace shop, and tells it; absent stands for an object that is not
// there.
func (d *demo) field(object, path, want string) error {
	if err := d.fieldIs(object, path, want); err != nil {
		return err
	}
	checked("%s: %s", object, want)
	return nil
}

func (d *demo) fieldIs(object, path, want string) error {
	out, err := d.output("kubectl", "get", "-n", "shop", "--ignore-not-found", object, "-o", "jsonpath={"+path+"}")
	if err != nil {
		return err
	}
	if out == "" {
		out = absent
	}
	if out != want {
		return fmt.Errorf("%s has %s %q, and should have %q", object, path, out, want)
	}
	return nil
}

const absent = "absent"
