// Package docs_test keeps the pages of this folder true: what they name exists.
package docs_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write requirements.md anew from the tests")

// file is a Go file of the product.
type file struct {
	path   string // from the root of the clone
	text   string
	syntax *ast.File
	set    *token.FileSet
}

func (f file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// product parses every Go file of the product; the modules below dev/ are not part of it.
func product(t *testing.T) []file {
	t.Helper()
	var files []file
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() && path != ".." && (strings.HasPrefix(name, ".") || path == filepath.Join("..", "dev") || path == filepath.Join("..", "bin")) {
			return fs.SkipDir
		}
		if entry.IsDir() || filepath.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		syntax, err := parser.ParseFile(set, path, text, parser.ParseComments)
		if err != nil {
			return err
		}
		files = append(files, file{path: strings.TrimPrefix(path, "../"), text: string(text), syntax: syntax, set: set})
		return nil
	}))
	return files
}

// functions are the functions and methods of a file.
func functions(f file) []*ast.FuncDecl {
	var out []*ast.FuncDecl
	for _, declaration := range f.syntax.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok {
			out = append(out, function)
		}
	}
	return out
}

func receiver(function *ast.FuncDecl) string {
	if function.Recv == nil {
		return ""
	}
	if star, ok := function.Recv.List[0].Type.(*ast.StarExpr); ok {
		if name, ok := star.X.(*ast.Ident); ok {
			return name.Name
		}
	}
	return ""
}

// testFunctions are the tests of the product, with the text of each: its comment, its name and its body. The scripts
// that tests run count by the names of their files.
func testFunctions(t *testing.T) map[string]string {
	t.Helper()
	tests := map[string]string{}
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".txtar" {
			return err
		}
		text, err := os.ReadFile(path)
		tests[entry.Name()] = string(text)
		return err
	}))
	for _, f := range product(t) {
		if !f.isTest() {
			continue
		}
		for _, function := range functions(f) {
			if function.Recv != nil || !strings.HasPrefix(function.Name.Name, "Test") || function.Name.Name == "TestMain" {
				continue
			}
			begin, end := f.set.Position(function.Pos()).Offset, f.set.Position(function.End()).Offset
			tests[function.Name.Name] += function.Doc.Text() + f.text[begin:end]
		}
	}
	return tests
}

var quoted = regexp.MustCompile("`([^`]+)`")

// names are the quoted words of a cell.
func names(cell string) []string {
	var out []string
	for _, match := range quoted.FindAllStringSubmatch(cell, -1) {
		out = append(out, match[1])
	}
	return out
}

// table reads the rows of the table of a page that begins with a header.
func table(t *testing.T, page, header string) [][]string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "| "+header)
	require.True(t, found, "%s has no table that begins with %q", page, header)
	var rows [][]string
	for _, line := range strings.Split(rest, "\n")[2:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "|"), " | ")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	require.NotEmpty(t, rows, page)
	return rows
}

func TestTheStepsOfASyncNameFunctionsActivitiesAndTestsThatExist(t *testing.T) {
	steps, activities, tests := map[string]bool{}, map[string]bool{}, testFunctions(t)
	for _, f := range product(t) {
		for _, function := range functions(f) {
			switch {
			case f.isTest():
			case strings.HasPrefix(f.path, "workflows/") && (receiver(function) == "sync" || receiver(function) == "loop"):
				steps[function.Name.Name] = true
			case strings.HasPrefix(f.path, "activities/") && receiver(function) == "Activities" && function.Name.IsExported():
				activities[function.Name.Name] = true
			}
		}
	}
	documented := map[string]bool{}
	for _, row := range table(t, "sync.md", "step |") {
		require.Len(t, row, 6, "%v", row)
		for _, name := range names(row[1]) {
			require.True(t, steps[name], "%s: workflows has no step %s", row[0], name)
		}
		for _, name := range names(row[2]) {
			require.True(t, activities[name], "%s: there is no activity %s", row[0], name)
			documented[name] = true
		}
		require.NotEmpty(t, names(row[5]), "%s names no test", row[0])
		for _, name := range names(row[5]) {
			require.Contains(t, tests, name, "%s: there is no such test", row[0])
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(activities)), slices.Sorted(maps.Keys(documented)), "the activities in sync.md")
}

func TestTheReasonsInTheDocsAreThoseOfTheCode(t *testing.T) {
	declared := map[string]bool{}
	for _, f := range product(t) {
		if f.path != "internal/release/reason.go" && f.path != "activities/errors.go" {
			continue
		}
		for _, match := range regexp.MustCompile(`= "([A-Z][A-Za-z]+)"`).FindAllStringSubmatch(f.text, -1) {
			declared[match[1]] = true
		}
	}
	for _, row := range table(t, "sync.md", "step |") {
		for _, reason := range names(row[4]) {
			require.True(t, declared[reason], "%s: there is no reason %s", row[0], reason)
		}
	}
	for _, row := range table(t, "sync.md", "reason |") {
		require.True(t, declared[names(row[0])[0]], "there is no reason %s", row[0])
	}
}

func TestTheFlagsInTheDocsAreThoseOfTheWorker(t *testing.T) {
	source, err := os.ReadFile("../worker/config.go")
	require.NoError(t, err)
	var declared, documented []string
	for _, match := range regexp.MustCompile(`Var\(&[\w.]+, "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1) {
		declared = append(declared, "--"+match[1])
	}
	for _, row := range table(t, "operations.md", "flag |") {
		documented = append(documented, names(row[0])...)
	}
	require.NotEmpty(t, declared)
	require.ElementsMatch(t, declared, documented)
}

func TestEveryDependencyHasAReason(t *testing.T) {
	mod, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	var modules []string
	for _, match := range regexp.MustCompile(`(?m)^\s+(?:require )?(\S+) v\S+`).FindAllStringSubmatch(string(mod), -1) {
		modules = append(modules, match[1])
	}
	used := map[string]bool{}
	for _, f := range product(t) {
		for _, spec := range f.syntax.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			best := ""
			for _, module := range modules {
				if (path == module || strings.HasPrefix(path, module+"/")) && len(module) > len(best) {
					best = module
				}
			}
			if best != "" {
				used[best] = true
			}
		}
	}
	documented := map[string]bool{}
	for _, row := range table(t, "dependencies.md", "module |") {
		require.NotEmpty(t, row[1], row[0])
		documented[names(row[0])[0]] = true
	}
	require.Equal(t, slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(documented)))
}

func TestLinksLeadSomewhere(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md", "../dev/README.md", "../examples/README.md") {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(string(text), -1) {
			target, anchor, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			linked := page
			if target != "" {
				linked = filepath.Join(filepath.Dir(page), target)
			}
			content, err := os.ReadFile(linked)
			require.NoError(t, err, "%s links to %s", page, match[1])
			if anchor != "" {
				require.Contains(t, anchors(string(content)), anchor, "%s links to %s", page, match[1])
			}
		}
	}
}

// anchors are those of the headings of a page.
func anchors(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			lower := strings.ToLower(strings.TrimSpace(title))
			out = append(out, strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(lower, ""), " ", "-"))
		}
	}
	return out
}

// number is a requirement as tests name it.
var number = regexp.MustCompile(`\b[SD][1-9][0-9]?\b`)

// A test proves a requirement when it names its number in its comment or its body. requirements.md may not claim more.
func TestRequirementsAreProvenByTestsThatNameThem(t *testing.T) {
	proven := map[string][]string{}
	for name, text := range testFunctions(t) {
		// Names of tests carry numbers between underscores.
		for _, n := range number.FindAllString(strings.ReplaceAll(text, "_", " "), -1) {
			if !slices.Contains(proven[n], name) {
				proven[n] = append(proven[n], name)
			}
		}
	}
	for _, list := range proven {
		sort.Strings(list)
	}
	if *update {
		writeRequirements(t, proven)
	}
	seen := map[string]bool{}
	for _, row := range table(t, "requirements.md", "number |") {
		require.False(t, seen[row[0]], "%s stands there twice", row[0])
		seen[row[0]] = true
		for _, name := range names(row[2]) {
			require.Contains(t, proven[row[0]], name, "%s is not named by that test: run with -update", row[0])
		}
	}
	for n := range proven {
		require.True(t, seen[n], "tests name %s, and requirements.md does not know it", n)
	}
}

// writeRequirements fills the last column.
func writeRequirements(t *testing.T, proven map[string][]string) {
	t.Helper()
	text, err := os.ReadFile("requirements.md")
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		cells := strings.SplitN(line, " | ", 3)
		n := strings.TrimPrefix(cells[0], "| ")
		if len(cells) != 3 || number.FindString(n) != n {
			continue
		}
		tests := "–"
		if len(proven[n]) > 0 {
			tests = "`" + strings.Join(proven[n], "`, `") + "`"
		}
		lines[i] = fmt.Sprintf("%s | %s | %s |", cells[0], cells[1], tests)
	}
	require.NoError(t, os.WriteFile("requirements.md", []byte(strings.Join(lines, "\n")), 0o644))
}

// The page of rights and the roles must not tell two stories.
func TestTheRightsInTheDocsAreThoseOfTheRole(t *testing.T) {
	granted, documented := map[string][]string{}, map[string][]string{}
	manifests, err := os.ReadFile("../deploy/rbac/control.yaml")
	require.NoError(t, err)
	for document := range strings.SplitSeq(string(manifests), "\n---\n") {
		var role rbacv1.ClusterRole
		require.NoError(t, yaml.Unmarshal([]byte(document), &role))
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				granted[resource] = append(granted[resource], rule.Verbs...)
			}
		}
	}
	for _, row := range table(t, "operations.md", "resource |") {
		for _, name := range names(row[0]) {
			if !strings.Contains(name, ".k8s.io") { // the group that stands behind the resource
				documented[name] = strings.Split(row[1], ", ")
			}
		}
	}
	require.NotEmpty(t, granted)
	require.Equal(t, granted, documented)
}
