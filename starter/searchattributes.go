package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	sdk "go.temporal.io/sdk/temporal"
)

// searchAttributes are what `convoy install` registers.
var searchAttributes = func() map[string]enumspb.IndexedValueType {
	types := map[string]enumspb.IndexedValueType{}
	for name, kind := range release.SearchAttributes() {
		types[name], _ = enumspb.IndexedValueTypeFromString(kind)
	}
	return types
}()

// searchAttributes lists the custom ones of the Temporal namespace.
func (t *temporal) searchAttributes(ctx context.Context) (map[string]enumspb.IndexedValueType, error) {
	list, err := t.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: t.namespace})
	if err != nil {
		return nil, fmt.Errorf("search attributes of the Temporal namespace %q at %s: %w", t.namespace, t.address, err)
	}
	return list.CustomAttributes, nil
}

func (t *temporal) addSearchAttributes(ctx context.Context, names []string) error {
	add := &operatorservice.AddSearchAttributesRequest{Namespace: t.namespace, SearchAttributes: map[string]enumspb.IndexedValueType{}}
	for _, name := range names {
		add.SearchAttributes[name] = searchAttributes[name]
	}
	_, err := t.OperatorService().AddSearchAttributes(ctx, add)
	var exists *serviceerror.AlreadyExists
	if err != nil && !errors.As(err, &exists) {
		return fmt.Errorf("register search attributes in the Temporal namespace %q at %s: %w", t.namespace, t.address, err)
	}
	return nil
}

// checkTypes compares what is registered with what convoy needs. A missing one is no error here: a dry run adds none.
func checkTypes(registered map[string]enumspb.IndexedValueType, namespace string) error {
	for _, name := range slices.Sorted(maps.Keys(searchAttributes)) {
		kind, known := registered[name]
		if known && kind != searchAttributes[name] {
			return failf(exitFailed, "search attribute %s of the Temporal namespace %q has the type %s, and convoy needs %s: "+
				"remove it (temporal operator search-attribute remove --name %s) and run `convoy install` again, or use a Temporal namespace of convoy's own",
				name, namespace, kind, searchAttributes[name], name)
		}
	}
	return nil
}

// attributesOf are the search attributes of a sync; ok is false when they are not registered in the right type.
func attributesOf(rel *v1alpha1.Release, registered map[string]enumspb.IndexedValueType) (attributes sdk.SearchAttributes, ok bool) {
	for name, kind := range searchAttributes {
		if registered[name] != kind {
			return sdk.NewSearchAttributes(), false
		}
	}
	updates := []sdk.SearchAttributeUpdate{
		sdk.NewSearchAttributeKeyKeyword(release.AttributeRelease).ValueSet(rel.Namespace + "/" + rel.Name),
	}
	if ref := rel.Spec.ClusterRef; ref != nil {
		updates = append(updates, sdk.NewSearchAttributeKeyKeyword(release.AttributeCluster).ValueSet(rel.Namespace+"/"+ref.Name))
	}
	return sdk.NewSearchAttributes(updates...), true
}
