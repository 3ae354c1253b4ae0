package engine_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/isolate"
)

// editEnv names a file to which a supervisor appends a line while its container starts, as somebody else may do.
const editEnv = "SNAPFS_TEST_EDIT"

// editingPlan returns a plan in which all steps succeed; if editEnv is set, the file is edited before the last one.
func editingPlan(step string) error {
	path := os.Getenv(editEnv)
	if path == "" || step != "let commands in" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString("during the start\n")
	return err
}

// listed waits until a reading of the workspace that began after the time began has ended.
func (b *bench) listed(began time.Time) {
	b.t.Helper()
	b.soon("the workspace is listed", func() bool {
		found, _ := filepath.Glob(filepath.Join(b.state, "manifests/*/again"))
		if len(found) != 1 {
			return false
		}
		data, _ := os.ReadFile(found[0]) // it is replaced now and then
		_, when, _ := strings.Cut(strings.TrimSpace(string(data)), " ")
		seen, err := time.Parse(time.RFC3339Nano, when)
		return err == nil && seen.After(began)
	})
}

// A file that somebody edits while a sandbox starts has its new state in the base. If the workspace was listed before,
// that state is known, and a later edit during the command is merged.
func TestAnEditDuringTheStartIsInTheBase(t *testing.T) {
	asBoth(t, func(t *testing.T, b *bench) {
		b.write("f", "one\n2\n3\n4\n5\n")
		b.new("first")
		began := time.Now()
		b.in("first", "true")
		b.listed(began)
		b.new("s")
		began = time.Now()
		in, tell, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer tell.Close()
		t.Setenv(editEnv, filepath.Join(b.workspace, "f"))
		p, err := b.Supervise.Exec(t.Context(), "s", isolate.Command{
			Args: []string{"/bin/sh", "-ec", "read x; sed -i s/one/mine/ f"}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: b.workspace, Stdin: in,
		})
		t.Setenv(editEnv, "")
		in.Close()
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		const edited = "one\n2\n3\n4\n5\nduring the start\n"
		if got := b.read("f"); got != edited {
			t.Fatalf("during the start f became %q", got)
		}
		b.listed(began)
		b.write("f", strings.Replace(edited, "4\n", "theirs\n", 1))
		if _, err := io.WriteString(tell, "\n"); err != nil {
			t.Fatal(err)
		}
		if st, err := p.Wait(t.Context()); err != nil || st.ExitCode() != 0 {
			t.Fatal(st, err)
		}
		if _, err := b.Reconcile.Promote(t.Context(), "s", reconcile.PromoteOptions{}); err != nil {
			t.Fatal(err)
		}
		if got, want := b.read("f"), "mine\n2\n3\ntheirs\n5\nduring the start\n"; got != want {
			t.Errorf("f is %q, want %q", got, want)
		}
	})
}
