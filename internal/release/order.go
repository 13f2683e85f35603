package release

import "k8s.io/apimachinery/pkg/runtime/schema"

// OrderHint says what the order of the render has to do with a failed apply: both places and the remedy, when the
// failure names an object that the render brings only later; empty otherwise (S16, D8).
func OrderHint(plan *Plan, item Item, failure *Failure) string {
	j := judge{plan: plan, custom: definitionsOf(plan)}
	for i := range plan.Items {
		if plan.Items[i].Ref == item.Ref {
			_, hint := j.excuseMissing(i, failure)
			return hint
		}
	}
	return ""
}

// RenderCRDs names the CustomResourceDefinitions of a render by the kind that each defines (D11).
func RenderCRDs(r *Render) map[schema.GroupKind]string {
	names := map[schema.GroupKind]string{}
	for i := range r.Objects {
		if gk, ok := DefinedKind(&r.Objects[i]); ok {
			names[gk] = r.Objects[i].Name
		}
	}
	return names
}
