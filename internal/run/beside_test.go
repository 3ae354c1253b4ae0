package run

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/errs"
)

// Cost: one link of a program without packages, some half a second.
func TestAProgramIsBuiltFromTheCheckout(t *testing.T) {
	if os.Geteuid() != 0 {
		// The compiler makes its directories in a new home, which other tests compare meanwhile.
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	}
	source, dir := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(source, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module m\n\ngo 1.26\n")
	write("cmd/snapfs-good/main.go", "package main\n\nfunc main() { print(`good`) }\n")
	write("cmd/snapfs-bad/main.go", "package main\n\nfunc main() { mistake() }\n")

	var notices []string
	path, err := buildIn(source, dir, "snapfs-good", func(text string) { notices = append(notices, text) })
	if err != nil || path != filepath.Join(dir, "snapfs-good") || len(notices) != 1 {
		t.Fatalf("%q, %v, notices %q", path, err, notices)
	}
	if err := Run(t.Context(), Program{Name: path}); err != nil {
		t.Error(err)
	}
	if _, err := buildIn(source, dir, "snapfs-bad", nil); err == nil || !strings.Contains(err.Error(), "mistake") {
		t.Errorf("err = %v, without the compiler's reason", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
}

func TestAMissingPartOfSnapfsNamesWhatInstallsIt(t *testing.T) {
	_, err := Beside("snapfs-nothing", nil)
	if !errors.Is(err, ErrMissing) || len(errs.HintsOf(err)) != 1 {
		t.Fatalf("err = %v, hints %q", err, errs.HintsOf(err))
	}
	if hint := errs.HintsOf(err)[0]; strings.Contains(hint, "@latest") {
		t.Errorf("hint %q names a module that nobody has published", hint)
	}
}
