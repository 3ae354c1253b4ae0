package mergetool

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The name of a file in conflict, which a sandbox may have chosen, adds no argument to the user's merge tool.
func TestANameAddsNoArgument(t *testing.T) {
	dir := t.TempDir()
	read := func(text string) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
	}
	files := Versions{Base: read("base"), Mine: read("mine"), Real: read("real")}
	for path, want := range map[string]string{
		"a/x.go": "4 base.go mine.go real.go out.go", "x": "4 base mine real out", "x.bücher2": "4 base.bücher2 mine.bücher2 real.bücher2 out.bücher2",
		"x.t -c :!id": "4 base mine real out", "x.a*": "4 base mine real out", "x.a\tb": "4 base mine real out", "x.$(id)": "4 base mine real out",
		"x.": "4 base. mine. real. out.", "x.a-b": "4 base mine real out",
	} {
		out := filepath.Join(dir, "result")
		tool := `set -- $BASE $MINE $REAL $OUT; { echo $#; for f; do echo "${f##*/}"; done; } | tr '\n' ' ' > "$OUT"`
		if err := Run(t.Context(), tool, nil, files, filepath.Join(dir, "tool"), path, out); err != nil {
			t.Errorf("%q: %v", path, err)
			continue
		}
		if got, err := os.ReadFile(out); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("%q: %q, %v; want %q", path, got, err, want)
		}
	}
}
