package main

import (
	"errors"
	"io"
	"os"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestAFileToReadIsNotOneToWrite: a command is the same user as its caller, and
// could open its input again for writing, or change its mode. What it has not
// read is left for whoever reads the file next.
func TestAFileToReadIsNotOneToWrite(t *testing.T) { asRoot(t, readOnlyInput) }

func TestAFileToReadIsNotOneToWriteForAnOrdinaryUser(t *testing.T) { asUser(t, readOnlyInput) }

func readOnlyInput(t *testing.T) {
	b := newDesk(t)
	b.snapfs("new", "box").want(0)
	path := b.workspace + "/input"
	defer os.Remove(path)
	const content = "four and the rest"
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, how := range [][]string{{"run", "-q", "--"}, {"exec", "box", "--"}, {"run", "-q", "--"}, {"exec", "box", "--"}} {
		mode := os.FileMode(0o644)
		if i >= 2 {
			mode = 0o666 // also the other ids of a sandbox of root may open the file for writing
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd := b.command(append(how, "sh", "-c", "dd bs=4 count=1 2>/dev/null; (: > /proc/self/fd/0) 2>/dev/null; chmod 777 /proc/self/fd/0 2>/dev/null; true")...)
		cmd.Stdin = f
		if o := b.finish(cmd).want(0); o.stdout != "four" {
			t.Errorf("%q read %q", how, o.stdout)
		}
		if got, _ := os.ReadFile(path); string(got) != content {
			t.Errorf("%q: the file holds %q", how, got)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != mode {
			t.Errorf("%q: the file's mode is %v: %v", how, info.Mode(), err)
		}
		if rest, err := io.ReadAll(f); err != nil || string(rest) != content[4:] {
			t.Errorf("%q left %q to read: %v", how, rest, err)
		}
	}
}

// TestFilesThatOthersMayChangeAreFed: root gives a sandbox only those files themselves that root alone may write.
func TestFilesThatOthersMayChangeAreFed(t *testing.T) {
	treetest.NeedRoot(t)
	for _, c := range []struct {
		uid, gid int
		mode     os.FileMode
		fed      bool
	}{
		{0, 0, 0o644, false},
		{0, 1000, 0o644, false},
		{0, 0, 0o600, true}, // which the command could not open again
		{0, 0, 0o646, true},
		{0, 100_000, 0o664, true},
		{100_000, 0, 0o444, true},
	} {
		path := t.TempDir() + "/input"
		if err := errors.Join(os.WriteFile(path, []byte("text"), 0o600), os.Chown(path, c.uid, c.gid), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		in, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		f, err := newFeed(in)
		if f != nil {
			f.end()
		}
		if err != nil || (f != nil) != c.fed {
			t.Errorf("%+v: fed %v, %v", c, f != nil, err)
		}
	}
}
