//go:build linux

package isolate

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A seen collects the paths of observed calls.
type seen struct {
	mu                               sync.Mutex
	files, programs, writes, changes []string
}

func (s *seen) add(o Observed) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := map[Act]*[]string{ActLookup: &s.files, ActExec: &s.programs, ActWrite: &s.writes, ActSetAttr: &s.changes}[o.Act]
	*list = append(*list, o.Path)
	return true
}

// has reports which paths were observed as files and as programs.
func (s *seen) has(file, program string) (asFile, asProgram bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.files, file), slices.Contains(s.programs, program)
}

func TestFilesAndProgramsAreObserved(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		if !Observes() {
			treetest.Skip(t, "seccomp of Linux 5.19", "the kernel is older")
		}
		treetest.NeedProgram(t, "python3")
		var all seen
		spec.Observe = &Observer{Files: true, Programs: true, Call: all.add}
		spec.NoExec = []string{"/usr/bin/id"}
		container := open(t, spec)
		long := "/tmp/" + strings.Repeat("x/", 1000) + "end"
		sh(t, container, `cat /tmp/absent 2>/dev/null; test -e /tmp/tested; cd /tmp && cat relative 2>/dev/null
			python3 -c 'import os
d = os.open("/usr", os.O_RDONLY)
for f in lambda: os.stat("below", dir_fd=d), lambda: os.readlink("/tmp/link"), lambda: os.open("`+long+`", 0), lambda: os.access("/tmp/asked", 0):
    try: f()
    except OSError: pass'
			printf '#!/usr/bin/cat\n' > /tmp/script; chmod +x /tmp/script; /tmp/script >/dev/null; id 2>/dev/null; true`)
		for _, path := range []string{"/tmp/absent", "/tmp/tested", "/tmp/relative", "/usr/below", "/tmp/link", long, "/tmp/asked"} {
			if file, _ := all.has(path, ""); !file {
				t.Errorf("%.40s was not observed", path)
			}
		}
		for _, path := range []string{"/usr/bin/cat", "/tmp/script", "/usr/bin/id"} {
			if _, program := all.has("", path); !program {
				t.Errorf("the execution of %s was not observed", path)
			}
		}
	})
}

func TestOnlyProgramsAreObserved(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		if !Observes() {
			treetest.Skip(t, "seccomp of Linux 5.19", "the kernel is older")
		}
		var all seen
		spec.Observe = &Observer{Programs: true, Call: all.add}
		container := open(t, spec)
		sh(t, container, "cat /tmp/absent 2>/dev/null; /bin/true")
		if _, program := all.has("", "/usr/bin/true"); !program {
			t.Error("the execution of /usr/bin/true, by a symbolic link, was not observed")
		}
		if len(all.files) > 0 {
			t.Errorf("observed besides programs: %q", all.files)
		}
	})
}

// TestOnlyWritesAreObserved: each way to write or change a file is observed with its path after symbolic links, and
// nothing else: not what opens a file for reading, what would fail anyway, or what writes to a device. Where programs
// are observed too, both are.
func TestOnlyWritesAreObserved(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		if !Observes() {
			treetest.Skip(t, "seccomp of Linux 5.19", "the kernel is older")
		}
		treetest.NeedProgram(t, "python3")
		var all seen
		spec.Observe = &Observer{Programs: true, Writes: true, Call: all.add}
		container := open(t, spec)
		sh(t, container, `mkdir /home/d /home/d/e; echo x > /home/d/f; ln -s d /home/link; ln -s nowhere /home/dangling; mkfifo /home/fifo; cat /home/d/f >/dev/null`)
		all.mu.Lock()
		all.writes = nil
		all.mu.Unlock()
		sh(t, container, `python3 -I -S -B -c 'import os
def no(f, *a, **k):
    try: f(*a, **k)
    except OSError: pass
d = os.open("/home", os.O_RDONLY)
f = os.open("/home/d/f", os.O_RDONLY)
for f, *a in (
    (os.open, "/home/link/f", os.O_WRONLY), (os.open, "/home/link/made", os.O_CREAT | os.O_RDONLY), (os.open, "/home/d/cut", os.O_CREAT | os.O_TRUNC | os.O_RDWR),
    (os.mkdir, "/home/made"), (os.symlink, "x", "/home/symbolic"), (os.link, "/home/d/f", "/home/hard"), (os.mkfifo, "/home/node"),
    (os.rename, "/home/hard", "/home/renamed"), (os.unlink, "/home/renamed"), (os.rmdir, "/home/d/e"), (os.truncate, "/home/link/f", 0),
    (os.chmod, "/home/link/f", 0o600), (os.utime, "/home/d"), (os.open, "/home/d", os.O_TMPFILE | os.O_RDWR),
    (os.open, "/proc/self/cwd/home/cwd", os.O_CREAT | os.O_WRONLY), (os.mkdir, "/proc/thread-self/root/home/root"),
    (os.open, "/dev/fd/%d/fd" % d, os.O_CREAT | os.O_WRONLY), (os.unlink, "/proc/%d/fd/%d/fd" % (os.getpid(), d)), (os.open, "/dev/fd/%d" % f, os.O_WRONLY),
    # none of these
    (os.open, "/home/d/f", os.O_RDONLY), (os.open, "/home/d/absent", os.O_WRONLY), (os.open, "/home/d/f", os.O_CREAT | os.O_EXCL | os.O_WRONLY),
    (os.open, "/home/absent/f", os.O_CREAT | os.O_WRONLY), (os.open, "/dev/null", os.O_WRONLY), (os.open, "/home/fifo", os.O_RDWR),
    (os.mkdir, "/home/d"), (os.unlink, "/home/absent"), (os.stat, "/home/d/f"), (os.open, "/home/dangling", os.O_WRONLY), (os.open, "/home/d", os.O_WRONLY),
    (os.open, "/proc/self/cwd", os.O_WRONLY), (os.unlink, "/proc/self/cwd"), (os.open, "/dev/stdin", os.O_WRONLY), (os.open, "/proc/1/cwd/home/d/f", os.O_WRONLY),
): no(f, *a)
no(os.open, "relative", os.O_CREAT | os.O_WRONLY, dir_fd=d)'`)
		all.mu.Lock()
		defer all.mu.Unlock()
		want := []string{
			"/home/d/f", "/home/d/made", "/home/d/cut", "/home/made", "/home/symbolic", "/home/hard", "/home/node",
			"/home/hard", "/home/renamed", "/home/renamed", "/home/d/e", "/home/d/f", "/home/d",
			"/home/cwd", "/home/root", "/home/fd", "/home/fd", "/home/d/f", "/home/relative",
		}
		if !slices.Equal(all.writes, want) {
			t.Errorf("writes: %q, want %q", all.writes, want)
		}
		if changes := []string{"/home/d/f", "/home/d"}; !slices.Equal(all.changes, changes) {
			t.Errorf("changes: %q, want %q", all.changes, changes)
		}
		if len(all.files) > 0 || !slices.ContainsFunc(all.programs, func(p string) bool { return strings.HasPrefix(p, "/usr/bin/python3") }) {
			t.Errorf("files %q, programs %q", all.files, all.programs)
		}
	})
}

// TestReadsAndMovesAreObserved: each way to read a file is observed with its path after symbolic links before the kernel
// reads, and each way to give a file another name with both names. A call for which the observer returns false fails.
func TestReadsAndMovesAreObserved(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		if !Observes() {
			treetest.Skip(t, "seccomp of Linux 5.19", "the kernel is older")
		}
		treetest.NeedProgram(t, "python3")
		var mu sync.Mutex
		var reads, moves, others []string
		spec.Observe = &Observer{Reads: true, Moves: true, Call: func(o Observed) bool {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case o.Act == ActMove:
				moves = append(moves, o.Path+" "+o.To)
			case o.Act == ActRead && strings.HasPrefix(o.Path, "/home/"):
				reads = append(reads, o.Path)
			case o.Act != ActRead:
				others = append(others, o.Path)
			}
			return o.Path != "/home/refused"
		}}
		container := open(t, spec)
		sh(t, container, `mkdir /home/d /home/d/e; for f in d/f refused x y; do echo x > /home/$f; done; ln -s d /home/link; ln -s d/f /home/flink; mkfifo /home/fifo`)
		mu.Lock()
		reads, moves = nil, nil
		mu.Unlock()
		sh(t, container, `python3 -I -S -B -c 'import os, ctypes
def no(f, *a, **k):
    try: f(*a, **k)
    except OSError: pass
libc = ctypes.CDLL(None)
d = os.open("/home", os.O_PATH)
f = os.open("/home/d/f", os.O_PATH)
how = (ctypes.c_uint64 * 3)(0, 0, 0)
for f, *a in (
    (os.open, "/home/link/f", os.O_RDONLY), (os.open, "/home/flink", os.O_RDWR), (os.open, "/proc/self/fd/%d" % f, os.O_RDONLY), (os.open, "/home/d", os.O_DIRECTORY),
    (libc.syscall, 437, -100, b"/home/d/f", how, 24), (os.open, "/proc/self/root/home/d/f", os.O_RDONLY), (os.open, "/home/new", os.O_CREAT | os.O_RDWR),
    (os.rename, "/home/link/f", "/home/renamed"), (os.link, "/home/renamed", "/home/link/hard"), (libc.linkat, -100, b"/home/flink", -100, b"/home/followed", 0x400),
    (libc.linkat, -100, b"/proc/self/fd/%d" % f, -100, b"/home/magic", 0x400), (libc.renameat2, -100, b"/home/x", -100, b"/home/y", 2),
    # none of these
    (os.open, "/home/d/f", os.O_WRONLY), (os.open, "/home/d/f", os.O_PATH), (os.open, "/home/absent", os.O_RDONLY), (os.open, "/home/fifo", os.O_RDWR), (os.stat, "/home/x"),
    (os.open, "/home/flink", os.O_NOFOLLOW), (os.rename, "/home/absent", "/home/x"),
): no(f, *a)'; if cat /home/refused 2>/tmp/why; then echo read; fi; grep -q "Input/output" /tmp/why && echo refused >/home/said`)
		if got := ran(t, container, "test -e /home/said"); got != "0" {
			t.Errorf("a refused read: %s", got)
		}
		mu.Lock()
		defer mu.Unlock()
		want := []string{"/home/d/f", "/home/d/f", "/home/d/f", "/home/d", "/home/d/f", "/home/d/f", "/home/refused"}
		if !slices.Equal(reads, want) {
			t.Errorf("reads: %q, want %q", reads, want)
		}
		want = []string{"/home/d/f /home/renamed", "/home/renamed /home/d/hard", "/home/renamed /home/magic", "/home/x /home/y", "/home/y /home/x"}
		if !slices.Equal(moves, want) {
			t.Errorf("moves: %q, want %q", moves, want)
		}
		if len(others) > 0 {
			t.Errorf("observed besides: %q", others)
		}
	})
}

// A container that is observed ends only after its observer: until then the observer holds the container's root open,
// and the filesystem there is in use. Cost: 0.2 s.
func TestAnObservedContainerEndsAfterItsObserver(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		if !Observes() {
			treetest.Skip(t, "seccomp of Linux 5.19", "the kernel is older")
		}
		called, release := make(chan bool, 100), make(chan bool)
		spec.Observe = &Observer{Writes: true, Call: func(Observed) bool { called <- true; <-release; return true }}
		container := open(t, spec)
		if _, err := container.Exec(t.Context(), shell("echo x > /tmp/f; sleep 1000")); err != nil {
			t.Fatal(err)
		}
		<-called
		ended := make(chan error, 1)
		go func() { ended <- container.Close(t.Context()) }()
		select {
		case err := <-ended:
			t.Errorf("it has ended while its observer works: %v", err)
			close(release)
		case <-time.After(100 * time.Millisecond): // the end would take some milliseconds
			close(release)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestAnObservedCommandIsFoundInPath: a command is found in its PATH, or the error gives the same reason as without an
// observer.
func TestAnObservedCommandIsFoundInPath(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		if !Observes() {
			treetest.Skip(t, "seccomp of Linux 5.19", "the kernel is older")
		}
		var all seen
		spec.Observe = &Observer{Programs: true, Call: all.add}
		container := open(t, spec)
		for _, c := range []struct {
			name, path string
			want       error
		}{
			{"true", "/absent:/etc:/usr/bin", nil},
			{"true", "/absent:/etc/passwd:/etc", syscall.ENOENT},
			{"passwd", "/absent:/etc", syscall.EACCES},
		} {
			_, err := container.Exec(t.Context(), Command{Args: []string{c.name}, Env: []string{"PATH=" + c.path}, Dir: "/"})
			var refused *CommandError
			if errors.As(err, &refused) {
				err = refused.Errno
			}
			if !errors.Is(err, c.want) {
				t.Errorf("%s in %s: %v, want %v", c.name, c.path, err, c.want)
			}
		}
		if _, program := all.has("", "/usr/bin/true"); !program {
			t.Error("the execution of /usr/bin/true was not observed")
		}
	})
}
