//go:build linux

package isolate

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate/landlock"
)

// afterLinks returns a program's path without symbolic links, which no rule follows.
func afterLinks(t *testing.T, program string) string {
	t.Helper()
	real, err := filepath.EvalSymlinks(program)
	if err != nil {
		t.Fatal(err)
	}
	return real
}

// ran reports how a script of the container ended, for the comparison with "0", or the status.
func ran(t *testing.T, container *Container, script string) string {
	t.Helper()
	return sh(t, container, "("+script+") >/dev/null 2>&1; echo $?")
}

func TestDeniedProgramsAreNotExecuted(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		treetest.NeedProgram(t, "python3")
		spec.NoExec = []string{"/usr/bin/id", "/usr/bin/nobody", "/usr/lib/git-core", "/usr/bin/awk"}
		container := open(t, spec)
		for script, want := range map[string]string{
			"/usr/bin/id":     "126",
			"id":              "126",
			"/bin/sh -c id":   "126",
			"exec /bin/id":    "126", // by another path to the same file
			"whoami":          "0",
			"awk 'BEGIN { }'": "126", // through a symbolic link
			"/lib64/ld-linux-x86-64.so.2 /usr/bin/id":           "127", // mapped instead of executed
			"cat /usr/bin/id":                                   "0",
			"cp /usr/bin/id /tmp/copy && /tmp/copy":             "0", // as docs/profile.md says
			"mv /usr/bin/id /tmp/moved || mv /usr/bin/id /tmp/": "1",
		} {
			if got := ran(t, container, script); got != want {
				t.Errorf("%s: status %s, want %s", script, got, want)
			}
		}
		if _, err := container.Exec(t.Context(), Command{Args: []string{"/usr/bin/id"}, Dir: "/"}); err == nil || !strings.Contains(err.Error(), "permission denied") {
			t.Errorf("the first program of a command: %v", err)
		}
	})
}

func TestOnlyAllowedProgramsAreExecuted(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		if landlock.ABI() < landlock.ExecuteABI {
			treetest.Skip(t, "Landlock ABI 2", "the kernel is older")
		}
		spec.Execute = []string{afterLinks(t, "/usr/bin/sh"), "/usr/bin/cat", "/usr/bin/cp", "/usr/bin/mv", "/usr/bin/mkdir", "/usr/bin/chmod", "/usr/bin/nobody", "/usr/lib/git-core"}
		container := open(t, spec)
		for script, want := range map[string]string{
			"cat /etc/passwd":                       "0",
			"/bin/cat /dev/null":                    "0",
			"id":                                    "126",
			"cp /usr/bin/id /tmp/copy && /tmp/copy": "126",
			"cp /usr/bin/cat /tmp/cat && /tmp/cat /dev/null":                                      "126",
			"printf '#!/bin/sh\necho hi\n' > /tmp/script && chmod 755 /tmp/script && /tmp/script": "126",
			"sh -c id": "126",
			"mkdir -p /tmp/a /tmp/b && echo x > /tmp/a/f && mv /tmp/a/f /tmp/b/f && cat /tmp/b/f": "0", // a rename between directories
		} {
			if got := ran(t, container, script); got != want {
				t.Errorf("%s: status %s, want %s", script, got, want)
			}
		}
	})
}

func TestOnlyWritablePathsAreWritten(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		if landlock.ABI() < landlock.WriteABI {
			treetest.Skip(t, "Landlock ABI 3", "the kernel is older")
		}
		home := open(t, spec)
		sh(t, home, "mkdir -p /home/own/deep /home/other/in; ln -s loop /home/loop; echo x > /home/own/f; echo x > /home/other/f; echo x > /home/single; ln -s other /home/link; ln -s other /home/way; ls -l /home")
		if err := home.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		spec.Writable = []string{"/home/own", "/home/single", "/home/nobody", "/home/link", "/home/way/in", "/home/loop", "/home/single/x"}
		spec.ReadOnly = []string{"/home/own/deep"}
		container := open(t, volatileAgain(t, spec))
		for script, want := range map[string]string{
			"echo y > /home/own/f && cat /home/own/f":                  "0",
			"mkdir /home/own/new && echo y > /home/own/new/f":          "0",
			"echo y > /home/single":                                    "0",
			"rm /home/single":                                          "1",
			"echo y > /home/other/f":                                   "2",
			"echo y > /home/link/f":                                    "2", // the link is not followed
			"echo y > /home/other/in/f":                                "2",
			"rm /home/other/f":                                         "1",
			"mkdir /home/dir":                                          "1",
			"ln -s x /home/other/link":                                 "1",
			"mv /home/other/f /home/own/moved":                         "1",
			"truncate -s 0 /home/other/f":                              "1",
			"cat /home/other/f":                                        "0",
			"echo y > /home/own/deep/f":                                "2",
			"echo y > /tmp/f && mv /tmp/f /tmp/g && echo z >/dev/null": "0",
		} {
			if got := ran(t, container, script); got != want {
				t.Errorf("%s: status %s, want %s", script, got, want)
			}
		}
	})
}

// TestOnlyReadablePathsAreRead has every way to the content of a file that no list names: by a link, a hard link, a
// rename, a path below /proc, a descriptor without the right to read, a map and an execution. What is writable can be
// read.
func TestOnlyReadablePathsAreRead(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		if landlock.ABI() < landlock.WriteABI {
			treetest.Skip(t, "Landlock ABI 3", "the kernel is older")
		}
		treetest.NeedProgram(t, "python3")
		home := open(t, spec)
		sh(t, home, `mkdir -p /home/own/in /home/other/in /home/out; echo x > /home/own/f; echo x > /home/other/f; echo x > /home/single; ln -s other /home/link
			ln -s /home/other/f /home/own/link; ln /home/other/f /home/other/hard; printf '#!/bin/sh\necho hi\n' > /home/other/script; chmod 755 /home/other/script; cp /home/other/script /home/own/`)
		if err := home.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		const python = `python3 -I -S -B -c 'import os, ctypes
%s'`
		for _, c := range []struct {
			writable []string
			scripts  map[string]string
		}{
			{nil, map[string]string{ // the list is Landlock's alone
				"cat /home/own/f /home/single": "0", "ls /home/own": "0", "/home/own/script": "0",
				"cat /home/other/f": "1", "ls /home/other": "2", "ls /home": "2", "cat /home/own/link": "1", "cat /home/link/f": "1", "cat /home/other/hard": "1",
				"/home/other/script": "126", "sh /home/other/script": "2", "cat /proc/self/root/home/other/f": "1", "cd /home/other && cat f": "1", "cat < /home/other/f": "2",
				"ln /home/other/f /home/own/hard": "1", "mv /home/other/f /home/own/moved": "1", "mv /home/other /home/own/": "1", "mv /home/other/f /tmp/": "1",
				"echo y > /home/own/in/new && mv /home/own/in /home/own/there && cat /home/own/there/new": "0", "test -f /home/other/f && readlink /home/own/link": "0",
				"ls / ": "2", "ls /usr /etc /proc /sys /tmp": "0", "cat /etc/passwd": "0", "git --version": "0",
			}},
			{[]string{"/home/out"}, map[string]string{
				"echo y > /home/out/f && cat /home/out/f && ls /home/out": "0", "cat /home/own/f": "0", "echo y > /home/own/f": "2", "cat /home/other/f": "1",
				"mv /home/other /home/single": "1",
			}},
		} {
			spec.Readable, spec.Writable = []string{"/home/own", "/home/single", "/home/nobody", "/home/link"}, c.writable
			container := open(t, volatileAgain(t, spec))
			for script, want := range c.scripts {
				if got := ran(t, container, script); got != want {
					t.Errorf("writable %q: %s: status %s, want %s", c.writable, script, got, want)
				}
			}
			for name, script := range map[string]string{
				"openat2":          `how = (ctypes.c_uint64 * 3)(0, 0, 0); libc = ctypes.CDLL(None, use_errno=True); r = libc.syscall(437, -100, b"/home/other/f", how, 24); assert r >= 0, os.strerror(ctypes.get_errno())`,
				"O_PATH reopened":  `d = os.open("/home/other/f", os.O_PATH); os.open("/proc/self/fd/%d" % d, os.O_RDONLY)`,
				"O_PATH directory": `d = os.open("/home/other", os.O_PATH); os.open("f", os.O_RDONLY, dir_fd=d)`,
				"a map":            `import mmap; mmap.mmap(os.open("/home/other/f", os.O_RDWR), 1, mmap.MAP_PRIVATE, mmap.PROT_READ)`,
			} {
				for path, want := range map[string]string{"/home/other": "1", "/home/own": "0"} {
					script := strings.ReplaceAll(script, "/home/other", path)
					if path == "/home/own" && c.writable != nil {
						script = strings.ReplaceAll(script, "O_RDWR", "O_RDONLY") // it may not be written
					}
					if got := ran(t, container, strings.Replace(python, "%s", script, 1)); got != want {
						t.Errorf("writable %q: %s of a file in %s: status %s, want %s", c.writable, name, path, got, want)
					}
				}
			}
			if _, err := container.Exec(t.Context(), Command{Args: []string{"/home/other/script"}, Dir: "/"}); err == nil || !strings.Contains(err.Error(), "permission denied") {
				t.Errorf("the first program of a command: %v", err)
			}
			if err := container.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A directory above a read-only path stays where it is: if it could be moved, another could take its place.
func TestReadOnlyPathsStayInTheirPlace(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		before := open(t, spec)
		sh(t, before, "mkdir -p /home/a/b/ro /home/other; echo x > /home/a/b/ro/f; ls /home")
		if err := before.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		spec.ReadOnly = []string{"/home/a/b/ro", "/home/nobody/x"}
		container := open(t, volatileAgain(t, spec))
		for _, script := range []string{
			"mv -T /home/a /home/c", "mv -T /home/a/b /home/a/c", "mv -T /home/a/b/ro /home/a/b/c", "mv -T /home /h",
			"mv --exchange /home/a /home/other", "rm -r /home/a", "mkdir -p /home/a/b/ro; echo y > /home/a/b/ro/f",
		} {
			if got := ran(t, container, script); got == "0" {
				t.Errorf("%s: it was done", script)
			}
			if got := sh(t, container, "cat /home/a/b/ro/f"); got != "x" {
				t.Errorf("%s: the file is %q", script, got)
			}
		}
		if got := ran(t, container, "mv /home/other /home/moved && mkdir /home/a/b/new && mv /home/a/b/new /home/a/b/new2"); got != "0" {
			t.Errorf("other directories: status %s", got)
		}
	})
}

// volatileAgain returns the spec for another container with the same upper layers, which the kernel mounts again once
// their work directories record no other volatile mount.
func volatileAgain(t *testing.T, spec Spec) Spec {
	t.Helper()
	for _, m := range spec.Mounts {
		if m.Overlay != nil {
			work := filepath.Join(m.Overlay.Work, "work") // the kernel makes these without permissions
			for _, dir := range []string{work, filepath.Join(work, "incompat"), filepath.Join(work, "incompat", "volatile")} {
				if err := os.Chmod(dir, 0o700); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
			}
			if err := os.RemoveAll(filepath.Join(work, "incompat")); err != nil {
				t.Fatal(err)
			}
		}
	}
	return spec
}

func TestRulesForProgramsArePartOfTheSpec(t *testing.T) {
	s := Spec{NoExec: []string{"/x"}, Execute: []string{"/y", "/z"}, Writable: []string{"/w"}}
	if text := s.String(); !slices.Equal(strings.Split(text, "\n")[:3], []string{"no exec /x", "execute only /y /z", "write only /w"}) {
		t.Error(text)
	}
	s = Spec{Mounts: []Mount{{Target: "/", Skeleton: "/"}}, Network: NetworkNone, NoExec: []string{"relative"}}
	if s.check() == nil {
		t.Error("a relative path was taken")
	}
}
