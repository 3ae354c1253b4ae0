package main

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestPipesAreByteForByte(t *testing.T) { asRoot(t, throughPipes) }

func TestPipesAreByteForByteForAnOrdinaryUser(t *testing.T) { asUserLater(t, throughPipes) }

func throughPipes(t *testing.T) {
	size := int64(100 << 20)
	if testing.Short() {
		size = 4 << 20
	}
	b := newDesk(t)
	b.snapfs("new", "box").want(0)
	for _, args := range [][]string{{"run", "-q", "--", "cat"}, {"exec", "box", "--", "cat"}} {
		in, out := sha256.New(), sha256.New()
		cmd := b.command(args...)
		cmd.Stdin = io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), in)
		n := &counted{Hash: out}
		cmd.Stdout = n
		b.finish(cmd).want(0)
		if n.n != size || !bytes.Equal(in.Sum(nil), out.Sum(nil)) {
			t.Errorf("%q: %d of %d bytes came out, or others", args, n.n, size)
		}
	}
}

type counted struct {
	hash.Hash
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.Hash.Write(p)
}

// TestAFileIsHandedOverAsItIs: offsets are shared as between a shell's commands.
func TestAFileIsHandedOverAsItIs(t *testing.T) {
	asRoot(t, func(t *testing.T) {
		b := newDesk(t)
		f, err := os.Create(b.workspace + "/log")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, word := range []string{"one", "two"} {
			cmd := b.command("run", "-q", "--", "echo", word)
			cmd.Stdout = f
			b.finish(cmd).want(0)
		}
		if got, _ := os.ReadFile(f.Name()); string(got) != "one\ntwo\n" {
			t.Errorf("the file holds %q", got)
		}
		if err := os.Remove(f.Name()); err != nil {
			t.Error(err)
		}
	})
}

// TestSignalsAreTheCommands: a signal to snapfs is one to its command, which
// may catch it, and then decides by itself when and how it ends.
func TestSignalsAreTheCommands(t *testing.T) { asRoot(t, signals) }

func TestSignalsAreTheCommandsForAnOrdinaryUser(t *testing.T) { asUser(t, signals) }

func signals(t *testing.T) {
	b := newDesk(t)
	b.snapfs("new", "box").want(0)
	for _, how := range [][]string{{"run", "-q", "--"}, {"exec", "box", "--"}} {
		for sig, name := range map[syscall.Signal]string{syscall.SIGTERM: "TERM", syscall.SIGINT: "INT", syscall.SIGHUP: "HUP"} {
			caught := b.started(append(how, "sh", "-c", "trap 'echo caught; exit 5' "+name+"; echo up; while :; do sleep 0.02; done")...)
			caught.signal(sig)
			if st, out := caught.ended(); st != 5 || out != "caught\n" {
				t.Errorf("%q: caught SIG%s: status %d, output %q", how, name, st, out)
			}
			killed := b.started(append(how, "sh", "-c", "echo up; exec sleep 100")...)
			killed.signal(sig)
			if st, _ := killed.ended(); st != 128+int(sig) {
				t.Errorf("%q: SIG%s: status %d", how, name, st)
			}
		}
	}
	b.real()
}

// TestNothingOutlivesAKilledSnapfs: the command dies with it, and the next
// command says what it mends.
func TestNothingOutlivesAKilledSnapfs(t *testing.T) { asRoot(t, killed) }

func TestNothingOutlivesAKilledSnapfsOfAnOrdinaryUser(t *testing.T) { asUser(t, killed) }

func killed(t *testing.T) {
	b := newDesk(t)
	c := b.started("run", "--keep", "--", "sh", "-c", "echo x > new; trap '' TERM HUP; (setsid sleep 31.25 &); echo up; sleep 31.25")
	c.signal(syscall.SIGKILL)
	c.ended()
	for start := time.Now(); running("31.25"); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > 30*time.Second {
			t.Fatal("the command outlives snapfs")
		}
	}
	if o := b.snapfs("ls", "-q").want(0); o.stdout != "" || !strings.Contains(o.all, "was killed") {
		t.Errorf("ls after a kill: %q", o.all)
	}
	b.real()
}

// running looks for a process with this argument.
func running(arg string) bool {
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		line, _ := os.ReadFile("/proc/" + d.Name() + "/cmdline")
		if strings.Contains(string(line), "\x00"+arg+"\x00") {
			return true
		}
	}
	return false
}
