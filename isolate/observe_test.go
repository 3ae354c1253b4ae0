//go:build linux

package isolate

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A seen collects the paths of observed calls.
type seen struct {
	mu              sync.Mutex
	files, programs []string
}

func (s *seen) add(o Observed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.Exec {
		s.programs = append(s.programs, o.Path)
	} else {
		s.files = append(s.files, o.Path)
	}
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
		spec.Observe = all.add
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
		spec.Observe, spec.ObserveExec = all.add, true
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
