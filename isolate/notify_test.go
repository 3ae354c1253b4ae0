package isolate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestNotifyWritesAFileThatEveryProcessCanRead(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		for _, text := range []string{"first\n", "second\n"} {
			if err := container.Notify("news", []byte(text)); err != nil {
				t.Fatal(err)
			}
			if got, _ := output(t, container, shell("cat /run/snapfs/news; cd /run/snapfs; stat -c %a . news | tr '\\n' ' '; ls -A | wc -l")); got != text+"755 644 1\n" {
				t.Errorf("it reads %q", got)
			}
		}
		if err := container.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := container.Notify("news", nil); !errors.Is(err, errs.ErrClosed) {
			t.Errorf("a container that is gone: %v", err)
		}
	})
}

func TestNotifyFollowsNoLinkOutOfTheContainer(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		container := open(t, spec)
		victim := filepath.Join(t.TempDir(), "victim")
		if err := os.Mkdir(victim, 0o777); err != nil {
			t.Fatal(err)
		}
		sh(t, container, "ln -s "+victim+" /run/snapfs")
		if err := container.Notify("news", []byte("x")); err == nil {
			t.Error("a link in the place of the directory was followed")
		}
		sh(t, container, "rm /run/snapfs; mkdir /run/snapfs; ln -s "+victim+"/news /run/snapfs/news; ln -s "+victim+"/tmp /run/snapfs/.news")
		if err := container.Notify("news", []byte("x")); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(victim); err != nil || len(left) > 0 {
			t.Errorf("outside lie %v, %v", left, err)
		}
	})
}

// TestNotifyDoesNotDependOnTheHostsRun: whatever the host has at /run/snapfs, the container has its own. The host's /run
// is one of a mount namespace of a process of this test.
func TestNotifyDoesNotDependOnTheHostsRun(t *testing.T) {
	treetest.NeedRoot(t)
	for _, what := range []string{"private", "foreign", "link", "file"} {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", what)
		cmd.Env = append(os.Environ(), "SNAPFS_TEST_AS=notified")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "news\n755\n" {
			t.Errorf("%s: %v\n%s", what, err, out)
		}
	}
}

// notified writes a note in a container of a host that has something at /run/snapfs, and prints it from inside, with the
// mode of its directory.
func notified() {
	ctx := context.Background()
	err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"))
	const notes = "/run/snapfs"
	switch os.Args[1] {
	case "private":
		err = errors.Join(err, os.Mkdir(notes, 0o700))
	case "foreign":
		err = errors.Join(err, os.Mkdir(notes, 0o700), os.Chown(notes, 1234, 1234))
	case "link":
		err = errors.Join(err, os.Symlink("/etc", notes))
	case "file":
		err = errors.Join(err, os.WriteFile(notes, nil, 0o600))
	}
	if err == nil {
		err = printNote(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		os.Exit(1)
	}
}

func printNote(ctx context.Context) error {
	container, _, err := Start(ctx, whole(), nil)
	if err != nil {
		return err
	}
	defer container.Close(ctx)
	if err := container.Notify("news", []byte("news\n")); err != nil {
		return err
	}
	c := shell("cat /run/snapfs/news; stat -c %a /run/snapfs")
	c.Stdout, c.Stderr = os.Stdout, os.Stdout
	p, err := container.Exec(ctx, c)
	if err != nil {
		return err
	}
	_, err = p.Wait(ctx)
	return err
}
