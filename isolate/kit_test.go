package isolate

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate/internal/stopped"
)

// descendants lists the threads of all processes below the process pid, a container's pid 1.
func descendants(pid int) []stopped.Thread { return stopped.Threads(pid) }

// asBoth runs a test as root, in a container with its own ids, and as an ordinary user.
func asBoth(t *testing.T, test func(t *testing.T, spec Spec)) {
	t.Helper()
	if os.Geteuid() == 0 {
		leakless(t)
		test(t, rootSpec(t))
	}
	if treetest.AsUser(t) {
		leakless(t)
		test(t, userSpec(t))
	}
}

func leakless(t *testing.T) {
	t.Helper()
	treetest.Leaks(t)
}

// rootSpec is the whole machine as an overlay.
func rootSpec(t testing.TB) Spec {
	t.Helper()
	return Spec{
		Mounts:  []Mount{{Target: "/", Overlay: overlay(t, "/")}},
		Network: NetworkNone, IDs: Own(1 << 28), Hostname: "sandbox",
	}
}

// userSpec is the most an ordinary user can have: /home is an overlay.
func userSpec(t testing.TB) Spec {
	t.Helper()
	lower := filepath.Join(scratch(t), "lower")
	mkdir(t, lower)
	write(t, filepath.Join(lower, "file"), "real")
	o := overlay(t, lower)
	o.UserXattr, o.Nested = true, false
	return Spec{
		Mounts: []Mount{
			{Target: "/", Skeleton: "/"},
			{Target: "/etc", Source: "/etc", ReadOnly: true},
			{Target: "/home", Overlay: o},
			{Target: "/usr", Source: "/usr", ReadOnly: true},
			{Target: "/var", Source: "/var", ReadOnly: true},
		},
		Network: NetworkNone, IDs: Same, Hostname: "sandbox",
	}
}

func scratch(t testing.TB) string {
	t.Helper()
	if os.Geteuid() == 0 {
		return treetest.Dir(t)
	}
	dir := t.TempDir()
	t.Cleanup(func() { // the kernel creates directories without permissions in a work directory
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	return dir
}

// renewed returns the spec with new upper layers: a volatile upper layer can be mounted only once.
func renewed(t testing.TB, spec Spec) Spec {
	t.Helper()
	spec.Mounts = slices.Clone(spec.Mounts)
	for i, m := range spec.Mounts {
		if m.Overlay != nil {
			o := overlay(t, m.Overlay.Lower[0])
			o.UserXattr, o.Nested = m.Overlay.UserXattr, m.Overlay.Nested
			spec.Mounts[i].Overlay = o
		}
	}
	return spec
}

func overlay(t testing.TB, lower string) *Overlay {
	t.Helper()
	dir := scratch(t)
	o := &Overlay{Lower: []string{lower}, Upper: filepath.Join(dir, "upper"), Work: filepath.Join(dir, "work"), Nested: true}
	mkdir(t, o.Upper)
	mkdir(t, o.Work)
	return o
}

func mkdir(t testing.TB, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func shell(script string) Command {
	return Command{Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, Dir: "/"}
}

// open starts a container without a command and closes it with the test.
func open(t testing.TB, spec Spec) *Container {
	t.Helper()
	container, _, err := Start(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := container.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return container
}

// output runs a command in the container and returns its output.
func output(t testing.TB, container *Container, c Command) (string, Status) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c.Stdout, c.Stderr = w, w
	p, err := container.Exec(t.Context(), c)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	st, err := p.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(out), st
}

// sh returns the output of a script that must succeed.
func sh(t testing.TB, container *Container, script string) string {
	t.Helper()
	out, st := output(t, container, shell(script))
	if st != (Status{}) {
		t.Fatalf("%s: %+v\n%s", script, st, out)
	}
	return strings.TrimSpace(out)
}
