package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
	"golang.org/x/sys/unix"
)

const replacedEnv = "SNAPFS_TEST_REPLACED"

// A hidden file stays hidden when the host renames another over it, removes it or replaces its directory, while a
// sandbox of an ordinary user runs: in the user's home and in another user's directory, which have a mount in them. No
// named pipe in the latter leads to the host.
func TestAHiddenFileStaysHiddenWhenTheHostReplacesIt(t *testing.T) {
	if os.Getenv(replacedEnv) == "" {
		treetest.NeedRoot(t)
		a := treetest.User(t)
		top := withMounts(t, filepath.Join(a.Home, "mounted"))
		treetest.RunAs(t, a, t.Name(), treetest.WithEnv(replacedEnv+"="+top), treetest.WithFUSE())
		if info, err := os.Stat("/dev/fuse"); err != nil || info.Mode()&0o6 == 0 {
			treetest.RunAs(t, a, t.Name(), treetest.WithEnv(replacedEnv+"="+top))
		}
		return
	}
	b, dir := newDesk(t), filepath.Join(os.Getenv(replacedEnv), "deep", "er")
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	git, pg, below, pipe := filepath.Join(home, ".git-credentials"), filepath.Join(home, ".pgpass"), filepath.Join(dir, "secret"), filepath.Join(dir, "pipe")
	secret := func(path, text string) error { return os.WriteFile(path, []byte(text+"\n"), 0o600) }
	t.Cleanup(func() {
		for _, p := range []string{git, pg, dir + ".old", dir} {
			if err := os.RemoveAll(p); err != nil {
				t.Error(err)
			}
		}
	})
	if err := errors.Join(os.Mkdir(dir, 0o755), secret(git, "OLD"), secret(pg, "OLD"), secret(below, "OLD"), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	host, err := os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()

	// Opening a pipe to read and write never waits.
	const script = `(exec 3<> "$0/pipe" && echo LEAK >&3) 2> /dev/null; echo up; read go
		for p in 1 2; do cat ~/.git-credentials ~/.pgpass "$0/secret"; echo after $p; read go; done 2>&1; exit 0`
	cmd := b.command("run", "--discard", "--hide", below, "--", "sh", "-c", script, dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	var seen strings.Builder
	step := func(until string) { // what the command writes up to a line
		for lines.Scan() {
			fmt.Fprintln(&seen, lines.Text())
			if strings.HasPrefix(lines.Text(), until) {
				return
			}
		}
		t.Errorf("no line %q:\n%s", until, seen.String())
	}
	then := func(errs ...error) {
		if err := errors.Join(errs...); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(in, "go\n") // a command that has ended shows in the next step
	}
	step("up")
	buf := make([]byte, 64)
	if n, err := host.Read(buf); n > 0 {
		t.Errorf("a pipe of the host has %q, %v", buf[:n], err)
	}
	then(secret(git+".new", "NEW"), os.Rename(git+".new", git), os.Remove(pg), secret(below+".new", "NEW"), os.Rename(below+".new", below))
	step("after 1")
	then(os.Rename(dir, dir+".old"), os.Mkdir(dir, 0o755), secret(below, "NEW"), secret(pg, "NEW"))
	step("after 2")
	then()
	if err := in.Close(); err != nil {
		t.Error(err)
	}
	rest, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, rest)
	}
	if text := seen.String(); strings.Contains(text, "OLD") || strings.Contains(text, "NEW") {
		t.Errorf("the sandbox sees\n%s", text)
	}
}

// withMounts makes a directory of root with more than a few entries and returns its path. A user may write in its entry
// deep. A tmpfs is mounted at another entry of it, and one at own. The test unmounts both at its end.
func withMounts(t *testing.T, own string) (top string) {
	t.Helper()
	parent := treetest.Dir(t)
	top = filepath.Join(parent, "d")
	other := filepath.Join(top, "mounted")
	dirs := []string{own, other, top + "/deep"}
	for i := range 20 { // a small directory is a skeleton anyway
		dirs = append(dirs, fmt.Sprintf("%s/%d", top, i))
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chmod(parent, 0o755), os.Chmod(top+"/deep", 0o777)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{own, other} {
		if err := unix.Mount("snapfs-test", dir, "tmpfs", 0, "size=64k,mode=755"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
	}
	return top
}
