package files_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/serve/files"
	"github.com/snapfs/snapfs/serve/local"
)

func TestMain(m *testing.M) {
	os.Exit(treetest.WithProgram(m.Run, func(context.Context, string) error { return nil }))
}

// newSandbox makes a sandbox named t1 of a workspace that has a file "a".
func newSandbox(t *testing.T) (e *engine.Engine, workspace string) {
	t.Helper()
	treetest.NeedRoot(t)
	treetest.Leaks(t)
	dir := treetest.Dir(t)
	workspace = filepath.Join(dir, "work")
	if err := errors.Join(os.Mkdir(workspace, 0o755), os.WriteFile(filepath.Join(workspace, "a"), []byte("real"), 0o644)); err != nil {
		t.Fatal(err)
	}
	e, err := local.Open(t.Context(), local.Options{State: filepath.Join(dir, "state"), Program: treetest.Program(), Notice: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	req := hostfs.Request{Name: "t1", Workspace: workspace}
	req.Policy.Network = "none"
	if _, err := e.New(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Remove(context.Background(), "t1"); err != nil {
			t.Error(err)
		}
		if _, err := e.Collect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e, workspace
}

func newHelper(t *testing.T) *files.Helper {
	t.Helper()
	h := files.NewHelper(treetest.Program(), "files")
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// TestFilesOfASandboxAreThoseThatItsCommandsSee costs some 0.2 s.
func TestFilesOfASandboxAreThoseThatItsCommandsSee(t *testing.T) {
	e, workspace := newSandbox(t)
	h := newHelper(t)
	began := time.Now()
	s, err := h.Enter(t.Context(), e, "t1", supervise.ExecOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a := filepath.Join(workspace, "a")
	if _, err := s.Write(a, strings.NewReader("inside"), files.WriteOptions{}); err != nil {
		t.Error(err)
	}
	f, i, err := s.Read(a, 0)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(f); err != nil || string(data) != "inside" || i.UID != 0 {
		t.Errorf("%q, %+v, %v", data, i, err)
	}
	if _, _, err := s.Read("/proc/self/root/etc/passwd", 0); !errors.Is(err, errs.ErrInvalid) {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	t.Log("first session", time.Since(began))
	if data, err := os.ReadFile(a); err != nil || string(data) != "real" {
		t.Errorf("the real file: %q, %v", data, err)
	}
	began = time.Now()
	if s, err = h.Enter(t.Context(), e, "t1", supervise.ExecOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Remove(a, false), s.Close()); err != nil {
		t.Error(err)
	}
	t.Log("second session", time.Since(began))
	// Nothing runs in it any more, so a rollback is possible.
	if err := e.Rollback(t.Context(), "t1", ""); err != nil {
		t.Error(err)
	}
}

func TestASessionEndsWithItsContextAndItsSandbox(t *testing.T) {
	e, workspace := newSandbox(t)
	h := newHelper(t)
	ctx, cancel := context.WithCancel(t.Context())
	s, err := h.Enter(ctx, e, "t1", supervise.ExecOptions{})
	if err != nil {
		t.Fatal(err)
	}
	content, feed := io.Pipe() // never whole
	go func() {
		_, _ = feed.Write([]byte("half")) // until the session has ended
		cancel()
		feed.CloseWithError(context.Canceled) // as a request's body does when its client goes
	}()
	if _, err := s.Write(filepath.Join(workspace, "a"), content, files.WriteOptions{}); err == nil {
		t.Error("a write without the end of its content is no error")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if s, err = h.Enter(t.Context(), e, "t1", supervise.ExecOptions{}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f, _, err := s.Read(filepath.Join(workspace, "a"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := io.ReadAll(f); err != nil || string(data) != "real" {
		t.Errorf("after half a write: %q, %v", data, err)
	}
	if err := e.Supervise.Stop(t.Context(), "t1"); err != nil {
		t.Error(err)
	}
	if _, err := s.Stat("/", false); !errors.Is(err, errs.ErrInterrupted) {
		t.Error(err)
	}
}
