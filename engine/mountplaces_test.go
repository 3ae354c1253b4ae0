package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/internal/treetest"
)

// What is mounted in the workspace here has its place in a sandbox that came from elsewhere.
func TestWhatIsMountedHereHasItsPlaceInWhatCame(t *testing.T) {
	treetest.NeedRoot(t)
	for name, there := range map[string]string{
		"nothing there": ":", "a directory there": "mkdir -p sub/data/deep; echo inner > sub/data/deep/f; chmod 711 sub/data; echo x > config",
	} {
		t.Run(name, func(t *testing.T) {
			p := &pairing{near: newBench(t), far: newBench(t)}
			p.far.mounted(t)
			p.near.write("file", "one")
			p.near.new("fix")
			p.near.in("fix", there)
			p.carry(t, engine.SendRequest{Sandbox: "fix"})
			p.placed(t, there == ":")
		})
	}
}

// mounted mounts a filesystem at sub/data of the workspace, and a file on config.
func (b *bench) mounted(t *testing.T) {
	t.Helper()
	data, config := filepath.Join(b.workspace, "sub/data"), filepath.Join(b.workspace, "config")
	b.write("config", "beneath")
	b.write("over", "above")
	err := errors.Join(
		os.MkdirAll(data, 0o750), unix.Mount("snapfs-test", data, "tmpfs", 0, ""), os.WriteFile(filepath.Join(data, "i"), []byte("mounted"), 0o600),
		unix.Mount(filepath.Join(b.workspace, "over"), config, "", unix.MS_BIND, ""),
	)
	t.Cleanup(func() {
		for _, at := range []string{data, config} {
			if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// placed looks that the sandbox can be entered, and what it is told to have changed.
func (p *pairing) placed(t *testing.T, untouched bool) {
	t.Helper()
	if text := p.far.in("fix", "cat file sub/data/i config"); text != "onemountedabove" {
		t.Errorf("it has %q", text)
	}
	changes, err := p.far.Diff(t.Context(), "fix", "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Close()
	for _, part := range changes.Parts {
		for _, c := range part.Changes {
			if c.Path != "file" && c.Path != "over" && c.Path != "." && untouched || c.Kind.String() == "deleted" && c.Path != "over" {
				t.Errorf("%s: %v %v", c.Path, c.Kind, c.What)
			}
		}
	}
	p.far.sound("with what is mounted")
}
