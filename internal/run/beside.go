package run

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/snapfs/snapfs/errs"
)

// libexec is the directory, relative to that of the program snapfs, where make install puts programs that
// only snapfs starts.
const libexec = "../libexec/snapfs"

// Beside returns the command line that starts another program of this project, such as snapfs-edge. It looks
// in this program's directory, then in ../libexec/snapfs, then in PATH. go run and go install ./cmd/snapfs
// build only one program. Beside then builds the missing one next to this program, if the checkout that this
// program was compiled in still exists. It calls notice before, unless that is nil. Cost: a few system calls,
// or half a minute for building. Errors: ErrMissing.
func Beside(name string, notice func(text string)) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, missing(name)
	}
	dir := filepath.Dir(self)
	for _, path := range []string{filepath.Join(dir, name), filepath.Join(dir, libexec, name)} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return []string{path}, nil
		}
	}
	source, hint := checkout(), "sudo make install" // in a checkout
	var failed error
	if source != "" {
		path, err := buildIn(source, dir, name, notice)
		if err == nil {
			return []string{path}, nil
		}
		failed = err
		hint = "go -C " + source + " build -o " + dir + "/ ./cmd/" + name
	}
	if path, err := exec.LookPath(name); err == nil {
		return []string{path}, nil
	}
	if failed != nil {
		failed = fmt.Errorf("%w, and building it: %w", ErrMissing, failed)
		return nil, &errs.Error{Path: name, Kind: errs.ErrNotFound, Err: failed, Hints: []string{hint}}
	}
	return nil, missing(name, hint)
}

// checkout returns the directory of the source from which this program was compiled, in which [Beside] builds
// a missing program. It returns "" if that is unknown (go build -trimpath), no longer exists, or belongs to a
// user other than this one and root, who could have changed it since.
func checkout() string {
	_, file, _, _ := runtime.Caller(0) // in internal/run
	if !filepath.IsAbs(file) {
		return ""
	}
	dir := filepath.Dir(filepath.Dir(filepath.Dir(file)))
	info, err := os.Stat(filepath.Join(dir, "go.mod"))
	if err != nil {
		return ""
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return ""
	}
	return dir
}

// buildIn compiles the program cmd/name of the checkout source into the directory dir, and returns its path.
// It calls notice before, unless that is nil. Nothing is left in dir after an error.
func buildIn(source, dir, name string, notice func(string)) (string, error) {
	ctx := context.Background()
	part, err := os.MkdirTemp(dir, "."+name+"-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(part) //nolint:errcheck // an empty directory at most
	if notice != nil {
		notice(fmt.Sprintf("building %s beside %s, from %s", name, filepath.Base(os.Args[0]), source))
	}
	err = Run(ctx, Program{
		Name: "go", Args: []string{"build", "-buildvcs=false", "-o", part, "./cmd/" + name}, Dir: source,
		Env: append(os.Environ(), "CGO_ENABLED=0"),
	})
	path := filepath.Join(dir, name)
	if err == nil {
		err = os.Rename(filepath.Join(part, name), path)
	}
	return path, err
}
