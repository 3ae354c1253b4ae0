package engine_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
)

// new makes a sandbox to keep, removed when the test ends.
func (b *bench) new(name string) {
	b.t.Helper()
	req := b.request()
	req.Name = name
	if _, err := b.New(b.t.Context(), req); err != nil {
		b.t.Fatal(err)
	}
	b.removeLater(name)
}

func (b *bench) removeLater(name string) {
	b.t.Cleanup(func() {
		if err := b.Remove(context.Background(), name); err != nil && !errors.Is(err, errs.ErrNotFound) {
			b.t.Error(err)
		}
	})
}

// in runs a shell script in a kept sandbox and answers with its output.
func (b *bench) in(name, script string) string {
	b.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	p, err := b.Supervise.Exec(b.t.Context(), name, isolate.Command{Args: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: b.workspace, Stdout: w, Stderr: w})
	w.Close()
	if err != nil {
		b.t.Fatal(err)
	}
	out, _ := io.ReadAll(r)
	r.Close()
	st, err := p.Wait(b.t.Context())
	if err = errors.Join(err, p.Close()); err != nil || st.ExitCode() != 0 {
		b.t.Fatalf("%s: %v, %v\n%s", script, st, err, out)
	}
	return string(out)
}

// changed lists what differs between two states of a sandbox's workspace.
func (b *bench) changed(name, from, to string) []string {
	b.t.Helper()
	c, err := b.Compare.Diff(b.t.Context(), name, from, to)
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	var got []string
	for _, p := range c.Parts {
		for _, ch := range p.Changes {
			got = append(got, ch.Kind.Letter()+" "+strings.TrimPrefix(filepath.Join(p.Root, ch.Path), b.workspace+"/"))
		}
	}
	return got
}

func (b *bench) expect(name, from, to string, want ...string) {
	b.t.Helper()
	if got := b.changed(name, from, to); !slices.Equal(got, want) {
		b.t.Errorf("%s..%s: %q, want %q", from, to, got, want)
	}
}

func TestASandboxKeepsItsFilesBetweenCommands(t *testing.T) {
	asEach(t, aSandboxKeepsItsFilesBetweenCommands)
}

func aSandboxKeepsItsFilesBetweenCommands(t *testing.T, b *bench) {
	b.new("one")
	b.in("one", "echo a > f; echo t > /tmp/t")
	if got := b.in("one", "cat f /tmp/t"); got != "a\nt\n" {
		t.Errorf("got %q", got)
	}
	b.expect("one", "", "", "A f")
}

func TestStatesAreGoneBackToInAnyOrder(t *testing.T) { asBoth(t, statesAreGoneBackToInAnyOrder) }

func statesAreGoneBackToInAnyOrder(t *testing.T, b *bench) {
	b.write("f", "0")
	b.new("s")
	for _, state := range []string{"1", "2", "3"} {
		b.in("s", "printf "+state+" > f; touch new"+state)
		if _, err := b.Snapshot(t.Context(), "s", "s"+state); err != nil {
			t.Fatal(err)
		}
	}
	for _, state := range []string{"2", "1", "3", "2"} {
		if err := b.Rollback(t.Context(), "s", "s"+state); err != nil {
			t.Fatal(err)
		}
		if got := b.in("s", "cat f"); got != state {
			t.Errorf("at s%s, f is %q", state, got)
		}
	}
	b.expect("s", "", "", "M f", "A new1", "A new2")
	b.expect("s", "s1", "s3", "M f", "A new2", "A new3")
	b.expect("s", "s3", "s1", "M f", "D new2", "D new3")
	b.expect("s", "s2", "")
	if err := b.Rollback(t.Context(), "s", ""); err != nil {
		t.Fatal(err)
	}
	b.expect("s", "", "")
}

func TestALiveSandboxIsForkedAtOneMoment(t *testing.T) { asBoth(t, aLiveSandboxIsForkedAtOneMoment) }

func aLiveSandboxIsForkedAtOneMoment(t *testing.T, b *bench) {
	b.new("live")
	p, err := b.Supervise.Exec(t.Context(), "live", isolate.Command{
		Args: []string{"/bin/sh", "-c", "i=0; while :; do i=$((i+1)); echo $i > a; echo $i > b; done"},
		Env:  []string{"PATH=/usr/bin:/bin"}, Dir: b.workspace,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	time.Sleep(50 * time.Millisecond)
	if err := b.Rollback(t.Context(), "live", ""); !errors.Is(err, errs.ErrBusy) {
		t.Errorf("rolling back under running processes: %v, want ErrBusy", err)
	}
	if _, err := b.Fork(t.Context(), "live", "", "copy"); err != nil {
		t.Fatal(err)
	}
	b.removeLater("copy")
	first := b.in("copy", "cat a b")
	time.Sleep(20 * time.Millisecond)
	if again := b.in("copy", "cat a b"); again != first || first == "" {
		t.Errorf("the fork changed by itself: %q, then %q", first, again)
	}
	if now := b.in("live", "cat a"); now == strings.SplitAfter(first, "\n")[0] {
		t.Error("the original has stopped")
	}
}

func TestAForkOutlivesItsOrigin(t *testing.T) { asBoth(t, aForkOutlivesItsOrigin) }

func aForkOutlivesItsOrigin(t *testing.T, b *bench) {
	b.write("f", "0")
	b.new("parent")
	b.in("parent", "echo 1 > f")
	if _, err := b.Fork(t.Context(), "parent", "", "child"); err != nil {
		t.Fatal(err)
	}
	b.removeLater("child")
	if err := b.Remove(t.Context(), "parent"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.in("child", "echo 2 > g")
	b.expect("child", "", "", "M f", "A g")
}

func TestEverythingInASandboxIsGoneAfterRemove(t *testing.T) {
	asEach(t, everythingInASandboxIsGoneAfterRemove)
}

func everythingInASandboxIsGoneAfterRemove(t *testing.T, b *bench) {
	b.new("busy")
	b.in("busy", `trap '' TERM; for i in 1 2 3 4 5 6 7 8 9 10; do setsid sh -c "trap '' TERM HUP INT; while :; do sleep 1; done" >/dev/null 2>&1 & done`)
	if err := b.Remove(t.Context(), "busy"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Show(t.Context(), "busy"); !errors.Is(err, errs.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	// What is left of processes and mounts is counted at the end of the test.
}
