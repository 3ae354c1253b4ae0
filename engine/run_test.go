package engine_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate"
)

// bench is an engine with a workspace of its own.
type bench struct {
	*engine.Engine
	t         testing.TB
	workspace string
	state     string
	turn      int  // of a rehearsal
	cramped   bool // the disk is a small btrfs
}

func newBench(t testing.TB) *bench {
	t.Helper()
	home := "/var/tmp"
	if os.Geteuid() != 0 {
		home = os.Getenv("HOME")
	}
	dir, err := os.MkdirTemp(home, "snapfs-engine-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		removeStagesInRoot(filepath.Join(dir, "state"))
		_ = os.RemoveAll(dir)
	})
	_ = vfs.SpreadDirs(dir) // see treetest.Dir
	if test, ok := t.(*testing.T); ok {
		treetest.Leaks(test)
	}
	b := &bench{t: t, workspace: filepath.Join(dir, "work"), state: filepath.Join(dir, "state")}
	if err := os.Mkdir(b.workspace, 0o755); err != nil {
		t.Fatal(err)
	}
	b.Engine, err = engine.Open(context.Background(), engine.Config{
		State: b.state, Drivers: drivers(), Supervisor: []string{"/proc/self/exe", "keeper"},
		Notice: func(s string) { t.Log("mended: " + s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// removeStagesInRoot removes what "snapfs undo" would need for the promotions of a state directory to paths outside of
// the workspace: they have their stages in the root of the filesystem.
func removeStagesInRoot(state string) {
	list, _ := os.ReadDir(filepath.Join(state, "promotions"))
	for _, e := range list {
		id, _, _ := strings.Cut(e.Name(), ".")
		_ = os.RemoveAll("/.snapfs-apply-" + id)
	}
}

// asEach runs a test as root and as an ordinary user.
func asEach(t *testing.T, test func(t *testing.T, b *bench)) {
	asRoot(t, test)
	asUser(t, test)
}

// asBoth runs a test as root, and in make test-long as an ordinary user too: the test is about code that is the same
// for both. An ordinary user runs the user's half in make test.
func asBoth(t *testing.T, test func(t *testing.T, b *bench)) {
	asRoot(t, test)
	if later(t) {
		asUser(t, test)
	}
}

// later reports whether a test runs that part of it for which make test has no time where root runs it.
func later(t *testing.T) bool { return os.Geteuid() != 0 || treetest.Long(t) }

func asRoot(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Run("root", func(t *testing.T) {
		treetest.NeedRoot(t)
		test(t, newBench(t))
	})
}

func asUser(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Run("user", func(t *testing.T) {
		if treetest.AsUser(t) {
			test(t, newBench(t))
		}
	})
}

func (b *bench) request() hostfs.Request {
	return hostfs.Request{Workspace: b.workspace, Policy: catalog.Policy{Network: "none"}}
}

func (b *bench) write(name, content string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.workspace, name), []byte(content), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// sh runs a shell script in a fresh sandbox and answers with its session, which
// has ended, and its output.
func (b *bench) sh(script string) (*engine.Session, string, isolate.Status) {
	b.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	s, err := b.Run(b.t.Context(), b.request(), isolate.Command{Args: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: b.workspace, Stdout: w, Stderr: w})
	w.Close()
	if err != nil {
		b.t.Fatal(err)
	}
	out, _ := io.ReadAll(r)
	r.Close()
	st, err := s.Wait(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	return s, string(out), st
}

func TestARunShowsItsChangesAndLeavesTheRealTreeAlone(t *testing.T) {
	asEach(t, runLeavesTheRealTreeAlone)
}

func runLeavesTheRealTreeAlone(t *testing.T, b *bench) {
	b.write("README.md", "hello\n")
	s, out, st := b.sh("echo hi > new; rm README.md; id -u; exit 3")
	if st.ExitCode() != 3 || out != fmt.Sprintln(os.Geteuid()) {
		t.Errorf("status %v, output %q", st, out)
	}
	c, err := s.Engine.Compare.Changes(t.Context(), s.Record)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range c.Parts {
		for _, ch := range p.Changes {
			got = append(got, ch.Kind.Letter()+" "+filepath.Join(p.Root, ch.Path))
		}
	}
	c.Close()
	want := []string{"D " + b.workspace + "/README.md", "A " + b.workspace + "/new"}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("changes %q, want %q", got, want)
	}
	if err := s.Discard(context.Background()); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(b.workspace, "README.md")); err != nil || string(data) != "hello\n" {
		t.Errorf("the real file: %q, %v", data, err)
	}
	if _, err := os.Lstat(filepath.Join(b.workspace, "new")); err == nil {
		t.Error("the new file is in the real tree")
	}
}
