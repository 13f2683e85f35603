package release

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write what came out into testdata/parse")

// TestParse runs testdata/parse: each file says in its comment what it shows, holds the files of a source, and in
// "want" what comes out: the objects with wave, place and document, the warnings, or the errors.
func TestParse(t *testing.T) {
	scripts, err := filepath.Glob("testdata/parse/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(script)
			require.NoError(t, err)
			var files []File
			want := -1
			for i, f := range archive.Files {
				if f.Name == "want" {
					want = i
					continue
				}
				files = append(files, File{f.Name, f.Data})
			}
			require.GreaterOrEqual(t, want, 0, "no want")
			got := outcome(Parse(files))
			if *update {
				archive.Files[want].Data = []byte(got)
				require.NoError(t, os.WriteFile(script, txtar.Format(archive), 0o644))
			}
			require.Equal(t, string(archive.Files[want].Data), got)
		})
	}
}

func outcome(r *Render, err error) string {
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	for i := range r.Objects {
		o := &r.Objects[i]
		fmt.Fprintf(&b, "%s | wave %d | %s\n%s\n", o, o.Wave, o.Place, o.JSON)
	}
	for _, warning := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", warning)
	}
	if len(r.Objects) == 0 {
		b.WriteString("no objects\n")
	}
	return b.String()
}
