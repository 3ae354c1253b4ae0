package realwork

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// noDaemon looks for the processes of daemon.sh.
func noDaemon(b *bench) {
	for start := time.Now(); running("realwork-daemon") || running("86417.5"); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > 20*time.Second {
			b.t.Fatal("the daemon outlives its sandbox")
		}
	}
}

// running looks for a process with this argument.
func running(arg string) bool {
	dirs, _ := filepath.Glob("/proc/[0-9]*") // a pattern with /cmdline makes Glob list each directory
	for _, dir := range dirs {
		line, _ := os.ReadFile(dir + "/cmdline")
		if strings.Contains(string(line), "\x00"+arg+"\x00") {
			return true
		}
	}
	return false
}

func TestPipelinesLoseNothing(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Run("root", pipeline)
	}
	if os.Geteuid() == 0 && !treetest.Long(t) {
		return // the same as for root
	}
	t.Run("user", func(t *testing.T) {
		if treetest.AsUser(t) {
			pipeline(t)
		}
	})
}

// pipeline sends 20 MiB in, or 100 in make test-long, through two programs of the sandbox, and out.
func pipeline(t *testing.T) {
	size := int64(treetest.Budget(t, 20, 100)) << 20
	b := newBench(t)
	in, out := sha256.New(), sha256.New()
	cmd := b.command(program(), "run", "-q", "--discard", "--", "sh", "-c", "gzip -1 | gzip -d | tee copy; cmp -n 1000 copy copy; wc -c <copy >&2")
	var count bytes.Buffer
	cmd.Stdin = io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{7}), size), in)
	cmd.Stdout, cmd.Stderr = out, &count
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, count.String())
	}
	if !bytes.Equal(in.Sum(nil), out.Sum(nil)) || count.String() != fmt.Sprintln(size) {
		t.Errorf("other bytes came out; and in the sandbox were %s", count.String())
	}
}

func TestStatusesAndSignalsOfRealPrograms(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Run("root", statuses)
	}
	t.Run("user", func(t *testing.T) {
		if treetest.AsUser(t) {
			statuses(t)
		}
	})
}

func statuses(t *testing.T) {
	treetest.NeedProgram(t, "git", "make", "python3")
	b := newBench(t)
	b.outside("printf 'all:\\n\\tfalse\\n' >Makefile; echo x >a; echo y >b; touch plain")
	for want, args := range map[int][]string{
		0:                          {"true"},
		1:                          {"grep", "z", "a"},
		2:                          {"make"},
		7:                          {"sh", "-c", "exit 7"},
		124:                        {"timeout", "0.05", "sleep", "10"},
		126:                        {"./plain"},
		127:                        {"no-such-program"},
		128:                        {"git", "log"},
		128 + int(syscall.SIGKILL): {"sh", "-c", "kill -9 $$"},
		128 + int(syscall.SIGSEGV): {"sh", "-c", "kill -SEGV $$"},
		128 + int(syscall.SIGPIPE): {"bash", "-c", "kill -PIPE $$"},
		255:                        {"python3", "-c", "import os; os._exit(255)"},
	} {
		if out, got := b.snapfs(append([]string{"run", "-q", "--discard", "-C", b.space, "--"}, args...)...); got != want {
			t.Errorf("%q: status %d, want %d\n%s", args, got, want, out)
		}
	}
	b.empty()
}
