// Package deploy_test checks the manifests of this folder and what stands at the root for Docker.
package deploy_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"convoy.dev/convoy/api/v1alpha1"
	"convoy.dev/convoy/internal/release"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// decode reads every document of a file strictly into its typed object.
func decode(t *testing.T, file string) []runtime.Object {
	t.Helper()
	types := runtime.NewScheme()
	require.NoError(t, scheme.AddToScheme(types))
	require.NoError(t, v1alpha1.AddToScheme(types))
	decoder := serializer.NewCodecFactory(types, serializer.EnableStrict).UniversalDeserializer()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var objects []runtime.Object
	for _, document := range bytes.Split(data, []byte("\n---\n")) {
		object, _, err := decoder.Decode(document, nil, nil)
		require.NoError(t, err, "%s:\n%s", file, document)
		objects = append(objects, object)
	}
	return objects
}

func TestManifestsAreValid(t *testing.T) {
	files, err := filepath.Glob("rbac/*.yaml")
	require.NoError(t, err)
	examples, err := filepath.Glob("../examples/*.yaml")
	require.NoError(t, err)
	files = append(files, examples...)
	for _, file := range append(files, "worker.yaml", "../examples/shop/release.yaml", "../examples/hook-workflow/release.yaml") {
		require.NotEmpty(t, decode(t, file), file)
	}
}

func TestTheSampleRendersCanBeApplied(t *testing.T) {
	var files []release.File
	require.NoError(t, filepath.WalkDir("../examples/shop/render", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files = append(files, release.File{Name: path, Data: data})
		return err
	}))
	for _, object := range append(decode(t, "../examples/first-release.yaml"), decode(t, "../examples/shop/release.yaml")...) {
		if inline := object.(*v1alpha1.Release).Spec.Source.Inline; inline != nil {
			files = append(files, release.File{Name: "inline", Data: []byte(*inline)})
		}
	}
	_, err := release.Parse(files)
	require.NoError(t, err)
}

// What kubectl explain shows is for people: it names no requirement, and says each default that it has.
func TestTheDefinitionsExplainThemselves(t *testing.T) {
	files, err := filepath.Glob("crds/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		var definition map[string]any
		require.NoError(t, yaml.Unmarshal(data, &definition))
		explains(t, file, definition["spec"])
	}
}

func explains(t *testing.T, path string, node any) {
	t.Helper()
	switch node := node.(type) {
	case map[string]any:
		if text, ok := node["description"].(string); ok {
			require.NotRegexp(t, `\b[SD][0-9]+\b`, text, path)
			if value, ok := node["default"]; ok {
				require.Contains(t, text, fmt.Sprintf("Default: %v.", value), path)
			}
		}
		for name, child := range node {
			explains(t, path+"."+name, child)
		}
	case []any:
		for _, child := range node {
			explains(t, path, child)
		}
	}
}

// flags of the worker, as its source declares them.
func flags(t *testing.T) []string {
	t.Helper()
	source, err := os.ReadFile("../worker/config.go")
	require.NoError(t, err)
	var names []string
	for _, match := range regexp.MustCompile(`Var\(&[\w.]+, "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1) {
		names = append(names, match[1])
	}
	require.NotEmpty(t, names)
	return names
}

func TestTheWorkersManifestFitsTheWorker(t *testing.T) {
	worker := decode(t, "worker.yaml")[0].(*appsv1.Deployment)
	pod := worker.Spec.Template.Spec
	for _, arg := range pod.Containers[0].Args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		require.Contains(t, flags(t), name)
	}
	require.Greater(t, *pod.TerminationGracePeriodSeconds, int64(25), "longer than --stop-timeout")
	account := false
	for _, object := range decode(t, "rbac/control.yaml") {
		named, ok := object.(interface{ GetName() string })
		account = account || ok && object.GetObjectKind().GroupVersionKind().Kind == "ServiceAccount" && named.GetName() == pod.ServiceAccountName
	}
	require.True(t, account, "deploy/rbac makes the ServiceAccount %s", pod.ServiceAccountName)
}

func TestTheServiceLeadsToTheWorkersEndpoint(t *testing.T) {
	objects := decode(t, "worker.yaml")
	require.Len(t, objects, 2)
	worker, service := objects[0].(*appsv1.Deployment), objects[1].(*corev1.Service)
	require.Equal(t, worker.Namespace, service.Namespace)
	require.Equal(t, worker.Spec.Template.Labels, service.Spec.Selector)
	require.Len(t, service.Spec.Ports, 1)
	require.Equal(t, worker.Spec.Template.Spec.Containers[0].Ports[0].Name, service.Spec.Ports[0].TargetPort.String())
}

// The README promises that one of its objects can be taken out, and that a drift of one field leaves others to convoy.
func TestTheFirstReleaseDoesWhatTheReadmeSays(t *testing.T) {
	rel := decode(t, "../examples/first-release.yaml")[0].(*v1alpha1.Release)
	require.True(t, rel.Spec.SyncPolicy.Prune.Orphaned)
	render, err := release.Parse([]release.File{{Name: "inline", Data: []byte(*rel.Spec.Source.Inline)}})
	require.NoError(t, err)
	require.Len(t, render.Objects, 2)
	var first corev1.ConfigMap
	require.NoError(t, yaml.Unmarshal([]byte(strings.Split(*rel.Spec.Source.Inline, "---\n")[0]), &first))
	require.Greater(t, len(first.Data), 1)
}

// The hooks of the examples are Jobs that a cluster takes: the template of the Job's Pods lies one level deeper.
func TestTheExampleOfHooksHasContainers(t *testing.T) {
	hooks := decode(t, "../examples/hooks.yaml")[0].(*v1alpha1.Release).Spec.Hooks
	for _, hook := range append(hooks.PreSync, hooks.PostSync...) {
		require.NotEmpty(t, hook.Job.Template.Spec.Template.Spec.Containers, hook.Name)
	}
}

// compose is what is checked of docker-compose.yaml.
type compose struct {
	Services map[string]struct {
		Image       string            `json:"image"`
		Ports       []string          `json:"ports"`
		Volumes     []string          `json:"volumes"`
		Environment map[string]string `json:"environment"`
		Entrypoint  []string          `json:"entrypoint"`
		DependsOn   map[string]struct {
			Condition string `json:"condition"`
		} `json:"depends_on"`
		Healthcheck *struct{} `json:"healthcheck"`
	} `json:"services"`
}

func TestComposeIsPinnedLoopbackAndGated(t *testing.T) {
	data, err := os.ReadFile("../docker-compose.yaml")
	require.NoError(t, err)
	var c compose
	require.NoError(t, yaml.Unmarshal(data, &c))
	require.Len(t, c.Services, 6)
	for name, service := range c.Services {
		_, tag, pinned := strings.Cut(service.Image, ":")
		require.True(t, pinned && tag != "latest", "%s: %s", name, service.Image)
		for _, port := range service.Ports {
			require.True(t, strings.HasPrefix(port, "127.0.0.1:"), "%s: %s", name, port)
		}
		for _, volume := range service.Volumes {
			if source, _, _ := strings.Cut(volume, ":"); strings.HasPrefix(source, "./") {
				_, err := os.Stat(filepath.Join("..", source))
				require.NoError(t, err, "%s: %s", name, volume)
			}
		}
		for on, gate := range service.DependsOn {
			require.Contains(t, c.Services, on, name)
			require.True(t, gate.Condition == "service_completed_successfully" || c.Services[on].Healthcheck != nil, "%s waits for the health of %s, which has no check", name, on)
		}
	}
	require.Equal(t, "512", c.Services["temporal"].Environment["NUM_HISTORY_SHARDS"])
	for variable := range c.Services["worker"].Environment {
		twin := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(variable, "CONVOY_"), "_", "-"))
		require.Contains(t, flags(t), twin)
	}
}

func TestTheDynamicConfigSetsWhatItShould(t *testing.T) {
	data, err := os.ReadFile("compose/dynamicconfig.yaml")
	require.NoError(t, err)
	var settings map[string][]struct {
		Value any `json:"value"`
	}
	require.NoError(t, yaml.UnmarshalStrict(data, &settings))
	got := map[string]any{}
	for key, values := range settings {
		require.Len(t, values, 1, key)
		got[key] = values[0].Value
	}
	require.Equal(t, map[string]any{
		"matching.enableFairness": true, "frontend.WorkerCommandsEnabled": true,
		"system.enableCancelActivityWorkerCommand": true, "limit.maxIDLength": float64(255),
	}, got)
}

func TestTheScriptsParse(t *testing.T) {
	scripts, err := filepath.Glob("compose/*.sh")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for _, script := range scripts {
		out, err := exec.Command("sh", "-n", script).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// The image is built from a list of folders: a package that the programs import and the list forgets would break it.
func TestTheImageHasWhatTheProgramsImport(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if .Module}}{{if .Module.Main}}{{.ImportPath}}{{end}}{{end}}", "../worker", "../starter").Output()
	require.NoError(t, err)
	docker, err := os.ReadFile("../Dockerfile")
	require.NoError(t, err)
	ignore, err := os.ReadFile("../.dockerignore")
	require.NoError(t, err)
	var copied []string
	for _, match := range regexp.MustCompile(`(?m)^COPY (\S+) (\S+)$`).FindAllStringSubmatch(string(docker), -1) {
		require.Equal(t, match[1], match[2])
		require.Contains(t, string(ignore), "!"+match[1]+"\n")
		copied = append(copied, match[1])
	}
	for _, path := range strings.Fields(string(out)) {
		folder := strings.TrimPrefix(path, "convoy.dev/convoy/")
		require.True(t, slices.ContainsFunc(copied, func(c string) bool { return folder == c || strings.HasPrefix(folder, c+"/") }),
			"the Dockerfile does not copy %s", folder)
	}
}
