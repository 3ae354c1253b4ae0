package main

import (
	"io"
	"os"
	"testing"
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
	for _, how := range [][]string{{"run", "-q", "--"}, {"exec", "box", "--"}} {
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
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o644 {
			t.Errorf("%q: the file's mode is %v: %v", how, info.Mode(), err)
		}
		if rest, err := io.ReadAll(f); err != nil || string(rest) != content[4:] {
			t.Errorf("%q left %q to read: %v", how, rest, err)
		}
	}
}
