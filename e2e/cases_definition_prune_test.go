package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// S6 S8 D8: a definition that is the same as the live one excuses nothing; a changed one that comes first does.
func TestDryRun_an_unchanged_definition_excuses_nothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	group, own := w.ownGroup("lab.example.test")
	w.removeAtEnd("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "hoses."+group)
	good := w.caseRender("55-crd-and-resources-dropped-together", "render1.yaml", own...)
	w.release("r", good, nil)
	w.succeeds("r")

	coloured := strings.Replace(good, "spec: {size: 1}", "spec: {colour: red}", 1)
	w.render("r", coloured)
	message := w.isRejected("r")
	require.Contains(t, message, "the target cluster rejects 1 object: Hose "+w.ns+"/h1")
	require.Contains(t, message, "colour")

	w.render("r", strings.Replace(coloured, "size: {type: integer}", "size: {type: integer}, colour: {type: string}", 1))
	w.succeeds("r")
	require.Len(t, w.get("r").Status.Unverified, 1)
	require.Contains(t, w.get("r").Status.Unverified[0], "Hose "+w.ns+"/h1: this render changes CustomResourceDefinition hoses."+group+" first")
	require.Equal(t, map[string]any{"colour": "red"}, w.must(group+"/v1", "Hose", w.ns, "h1").Object["spec"])
}
