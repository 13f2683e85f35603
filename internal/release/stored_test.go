package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// parse makes a render of one YAML file.
func parse(t testing.TB, text string) *Render {
	t.Helper()
	r, err := Parse([]File{{"shop.yaml", []byte(text)}})
	require.NoError(t, err)
	return r
}

const twoObjects = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {text: "<&>", big: 9007199254740993}}
---
{apiVersion: v1, kind: Secret, metadata: {name: b, annotations: {convoy.dev/sync-wave: "2", helm.sh/hook: x}}, stringData: {k: v}}
`

// S11, D5: a stored render is the render.
func TestStoredRenderIsTheRender(t *testing.T) {
	r := parse(t, twoObjects)
	r.Revision = `W/"abc"`
	stored := Encode(r)
	back, err := Decode(stored)
	require.NoError(t, err)
	for i := range r.Objects {
		r.Objects[i].Place = Place{}
	}
	require.Equal(t, r, back)
	require.Equal(t, stored, Encode(back), "deterministic")
}

// The digest can be checked without convoy: it is the sha256 of all lines but the first.
func TestDigestIsTheHashOfTheStoredLines(t *testing.T) {
	r := parse(t, twoObjects)
	_, body, _ := bytes.Cut(Encode(r), []byte("\n"))
	sum := sha256.Sum256(body)
	require.Equal(t, "sha256:"+hex.EncodeToString(sum[:]), r.Digest)
	require.Equal(t, 2, bytes.Count(body, []byte("\n")))
}

func TestEmptyRenderCanBeStored(t *testing.T) {
	r := parse(t, "# nothing\n")
	back, err := Decode(Encode(r))
	require.NoError(t, err)
	require.Empty(t, back.Objects)
	require.Equal(t, r.Digest, back.Digest)
}

func TestDamagedRenderIsRefused(t *testing.T) {
	stored := string(Encode(parse(t, twoObjects)))
	first := strings.Index(stored, "\n") + 1
	for name, damaged := range map[string]string{
		"cut off":         stored[:len(stored)-10],
		"one object less": stored[:strings.Index(stored[first:], "\n")+first+1],
		"changed":         strings.Replace(stored, "9007199254740993", "9007199254740992", 1),
		"other format":    strings.Replace(stored, "/v1\"", "/v2\"", 1),
		"other count":     strings.Replace(stored, `"objects":2`, `"objects":3`, 1),
		"no header":       stored[first:],
		"empty":           "",
	} {
		_, err := Decode([]byte(damaged))
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "djA=", name)
	}
}

// D5: the digest depends on content and order, and on nothing else.
func TestDigest(t *testing.T) {
	a, b := "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n", "{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}\n"
	base := parse(t, a+"---\n"+b).Digest
	require.Regexp(t, `^sha256:[0-9a-f]{64}$`, base)
	same := map[string]string{
		"comments and layout":        "# hi\n---\nkind: ConfigMap\napiVersion: v1\nmetadata:\n  name: a\n---\n" + b,
		"D1 a List":                  "apiVersion: v1\nkind: List\nitems:\n- " + a + "- " + b,
		"D2 server fields (case 44)": "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, uid: x, resourceVersion: '1'}, status: {}}\n---\n" + b,
		"JSON":                       `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}` + "\n---\n" + b,
	}
	for name, text := range same {
		require.Equal(t, base, parse(t, text).Digest, name)
	}
	different := map[string]string{
		"another order":                b + "---\n" + a,
		"D3 is later: a copy counts":   a + "---\n" + a + "---\n" + b,
		"S14 is later: default counts": "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: default}}\n---\n" + b,
	}
	for name, text := range different {
		require.NotEqual(t, base, parse(t, text).Digest, name)
	}
}

// D29, D5: folding comes before the digest.
func TestDigestAfterFolding(t *testing.T) {
	require.Equal(t,
		parse(t, "{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {k: dg==}}").Digest,
		parse(t, "{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {k: v}}").Digest)
}

// D6: at most 200 waves.
func TestTooManyWaves(t *testing.T) {
	var b strings.Builder
	for i := range MaxWaves + 1 {
		fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: c%d, annotations: {convoy.dev/sync-wave: %q}}}\n", i, fmt.Sprint(i))
	}
	_, err := Parse([]File{{"a.yaml", []byte(b.String())}})
	require.ErrorContains(t, err, "a.yaml, document 201, line 402: ConfigMap c200 brings wave number 201 of the render, and at most 200 are allowed")
}

// D1, D35: 20 errors by name, and the total; the message stays bounded.
func TestErrorListIsBounded(t *testing.T) {
	_, err := Parse([]File{{"a.yaml", []byte(strings.Repeat("---\nkind: "+strings.Repeat("K", 5000)+"\n", 100))}})
	problems := ParseErrors{}
	require.ErrorAs(t, err, &problems)
	require.Len(t, problems, 100)
	require.Contains(t, err.Error(), "the manifests have 100 errors:")
	require.Contains(t, err.Error(), "… and 80 more")
	require.Less(t, len(err.Error()), 12<<10)
	require.Equal(t, RenderFailed, problems.Problem().Reason)
}

// A few aliases must not stand for gigabytes.
func TestAliasesCannotExplode(t *testing.T) {
	bomb := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nbig: &x " + strings.Repeat("x", 1<<20) + "\nmany: [" + strings.Repeat("*x, ", 1000) + "]\n"
	_, err := Parse([]File{{"a.yaml", []byte(bomb)}})
	require.ErrorContains(t, err, "grows to more than 128 MiB when its aliases are resolved")
}

func TestDepthIsBounded(t *testing.T) {
	for _, name := range []string{"a.json", "a.yaml"} {
		_, err := Parse([]File{{name, []byte(strings.Repeat("[", 100_000))}})
		require.Error(t, err)
	}
}

func TestNotUTF8(t *testing.T) {
	_, err := Parse([]File{{"a.yaml", []byte("a: 1\nb: \xff\xfe\n")}})
	require.ErrorContains(t, err, "a.yaml, document 1, line 2: is not UTF-8 text")
	r, err := Parse([]File{{"a.yaml", []byte("\xef\xbb\xbf{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")}})
	require.NoError(t, err)
	require.Len(t, r.Objects, 1)
}

// Parse never panics; what it accepts can be stored and read back with the same digest; values are those that
// sigs.k8s.io/yaml, and so kubectl, reads.
func FuzzParse(f *testing.F) {
	scripts, err := filepath.Glob("testdata/parse/*.txtar")
	require.NoError(f, err)
	for _, script := range scripts {
		data, err := os.ReadFile(script)
		require.NoError(f, err)
		for _, file := range txtar.Parse(data).Files {
			f.Add(file.Data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Parse([]File{{"a.yaml", data}})
		if err != nil {
			require.LessOrEqual(t, len(err.Error()), 16<<10)
			return
		}
		again, err := Parse([]File{{"a.yaml", data}})
		require.NoError(t, err)
		require.Equal(t, r.Digest, again.Digest)
		back, err := Decode(Encode(r))
		require.NoError(t, err)
		require.Equal(t, r.Digest, back.Digest)
		_, _ = Locate(r, nil)
	})
}

func FuzzValuesAreThoseOfKubectl(f *testing.F) {
	f.Add("a: yes\nb: 0x1f\nc: 1.5\nd: 010\n1: x\n")
	f.Add("a: &x [1, ~, .5]\nb: *x\nc: 2001-01-01\n")
	f.Add("a: !!binary aGk=\nb: !!str 1\nc: 1e400\n? x\n")
	f.Fuzz(func(t *testing.T, text string) {
		chunks := splitDocuments([]byte(text))
		if len(chunks) != 1 || looksLikeJSON([]byte(text)) {
			return
		}
		documents, problems := decodeYAML(chunks[0])
		if len(problems) > 0 {
			return
		}
		want, err := yaml.YAMLToJSON(chunks[0].text)
		require.NoError(t, err)
		got, err := json.Marshal(documents[0].value)
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(got))
	})
}

func BenchmarkParse1000Objects(b *testing.B) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "---\napiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web-%d\n  namespace: shop\nspec:\n  replicas: 2\n  selector:\n    matchLabels: {app: web}\n  template:\n    metadata:\n      labels: {app: web}\n    spec:\n      containers:\n      - name: web\n        image: registry.example/web:1\n        env:\n        - {name: A, value: b}\n        - {name: C, value: d}\n        resources:\n          limits: {cpu: 100m, memory: 1Gi}\n", i)
	}
	files := []File{{"a.yaml", []byte(text.String())}}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		if _, err := Parse(files); err != nil {
			b.Fatal(err)
		}
	}
}
