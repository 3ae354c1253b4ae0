package cmdbroker

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/guarded"
	"github.com/snapfs/snapfs/internal/fdsock"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/isolate/stub"
)

// A program gets the variables of the command from outside that pass, and from its caller the terminal and the language.
func TestOnlyHarmlessVariablesPass(t *testing.T) {
	outer := isolate.Command{Env: []string{"HOME=/root", "PATH=/usr/bin", "LD_PRELOAD=/x.so", "GIT_DIR=/x", "TOKEN=placeholder", "PYTHONPATH=/x", "TERM=dumb"}}
	caller := []string{
		"HOME=/tmp/evil", "PATH=/tmp/evil", "LD_PRELOAD=/tmp/x.so", "LD_LIBRARY_PATH=/tmp", "GIT_CONFIG_COUNT=1", "GIT_SSH_COMMAND=sh", "NODE_OPTIONS=--require /tmp/x",
		"PYTHONSTARTUP=/tmp/x", "BASH_ENV=/tmp/x", "TOKEN=mine", "TERM=xterm-256color", "LC_ALL=C.UTF-8", "LANG=../../tmp/x", "COLUMNS=80", "TERMINFO=/tmp", "LC_X=a b", "LINES=" + string(make([]byte, 70)),
	}
	want := []string{"HOME=/root", "PATH=/usr/bin", "TOKEN=placeholder", "TERM=xterm-256color", "LC_ALL=C.UTF-8", "COLUMNS=80"}
	if got := variables(&outer, caller, []string{"TOKEN"}, false); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := variables(&outer, nil, nil, true); !slices.Equal(got, []string{"PATH=/usr/bin"}) {
		t.Errorf("another user's: %q", got)
	}
}

// The program runs as its caller, by the ids that the container maps.
func TestIDsAreThoseInside(t *testing.T) {
	own := isolate.Own(1 << 28).With(100_000)
	for id, want := range map[uint32]uint32{1 << 28: 0, 1<<28 + 1000: 1000, 1<<28 + 65535: 65535, 1<<28 + 65536: 100_000, 1<<28 + 65537: 65534, 0: 65534, 1000: 65534} {
		if got := inside(own, id); got != want {
			t.Errorf("id %d of the host is %d inside, want %d", id, got, want)
		}
	}
	if got := inside(isolate.Same, 1000); got != 1000 {
		t.Error(got)
	}
}

// What a process has executed is read as it is, with empty arguments.
func TestTheArgumentsOfAProcess(t *testing.T) {
	args, err := procStrings(os.Getpid(), "cmdline")
	if err != nil || !slices.Equal(args, os.Args) {
		t.Errorf("%q, want %q: %v", args, os.Args, err)
	}
	own, err := restrictionsOf(os.Getpid())
	if err != nil || own.bounds == "" || own.root != "/" {
		t.Errorf("%+v: %v", own, err)
	}
	if _, err := statusOf(-1); err == nil {
		t.Error("there is a process -1")
	}
	c := call{ignored: 1 << (unix.SIGHUP - 1)}
	if !c.ignores(unix.SIGHUP) || c.ignores(unix.SIGINT) {
		t.Error("the ignored signals are wrong")
	}
}

// A refusal names the rules about the program, and as many arguments as these compare.
func TestARefusalNamesItsRules(t *testing.T) {
	var got Refusal
	b := &Broker{o: Options{Source: "/p.toml", Rules: []guarded.Rule{
		{Rule: "git status", Program: "/usr/bin/git", First: []string{"status"}},
		{Rule: "git diff --stat", Program: "/usr/bin/git", First: []string{"diff", "--stat"}},
		{Rule: "ls x", Program: "/usr/bin/ls", First: []string{"x"}},
	}, Refused: func(r Refusal) { got = r }}}
	c := &call{program: "/usr/bin/git", args: []string{"git", "push", "origin", "secret"}, by: "sh"}
	if why := b.why(c); why != "tools.allow has /usr/bin/git only as: git status, git diff --stat (/p.toml)" {
		t.Error(why)
	}
	b.announce(c, "why")
	if got.Program != "/usr/bin/git" || got.By != "sh" || got.Reason != "why" || !slices.Equal(got.Words, []string{"git", "push", "origin"}) {
		t.Errorf("%+v", got)
	}
	c.program = "/usr/bin/python3"
	if why := b.why(c); why != "/usr/bin/python3 is no program of a rule with arguments" {
		t.Error(why)
	}
}

// A connection whose process is none of the container, as one that has got the number of an ended process, is no call.
func TestAProcessOutsideOfTheContainerHasNoCall(t *testing.T) {
	if !descends(os.Getpid(), os.Getppid()) {
		t.Error("this process does not descend from its parent")
	}
	for _, init := range []int{os.Getpid(), 1 << 30, 0} {
		if descends(os.Getpid(), init) {
			t.Errorf("this process descends from %d", init)
		}
	}
	ours, theirs, err := fdsock.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	defer ours.Close()
	if _, err := readCall(ours, os.Getpid()); !errors.Is(err, errStranger) { // the peer is this process itself
		t.Error(err)
	}
	if _, err := readCall(ours, os.Getppid()); err != nil {
		t.Error(err)
	}
}

// A process that connects by itself may send any number in place of a signal; 0 has no bit among the ignored signals.
func TestAMessageWithoutASignalOfTheStubIsNone(t *testing.T) {
	for number := range uint32(70) {
		msg := make([]byte, stub.SignalSize)
		binary.NativeEndian.PutUint32(msg, number)
		signal, _, ok := signalIn(msg)
		if want := slices.Contains([]uint32{1, 2, 3, 10, 12, 14, 15, 18, 20, 28}, number); ok != want || ok && signal != unix.Signal(number) {
			t.Errorf("signal %d: %v, want %v", number, ok, want)
		}
	}
	if _, _, ok := signalIn(make([]byte, stub.SignalSize-1)); ok {
		t.Error("a short message is a signal")
	}
}

// The arguments of a process can be larger than the memory of the supervisor, so they are read up to a limit.
func TestTooManyArgumentsAreNotRead(t *testing.T) {
	most := strings.Repeat("x", 100_000)
	for _, c := range []struct {
		args []string
		want error
	}{
		{slices.Repeat([]string{most}, maxText/len(most)-1), nil},
		{slices.Repeat([]string{most}, maxText/len(most)+1), unix.E2BIG},
		{slices.Repeat([]string{""}, maxStrings+1), unix.E2BIG},
	} {
		p := exec.Command("/bin/sh", append([]string{"-c", "echo; read x", "sh"}, c.args...)...)
		end, err := p.StdinPipe()
		out, err2 := p.StdoutPipe()
		if err = errors.Join(err, err2); err == nil {
			err = p.Start()
		}
		if err == nil {
			_, err = out.Read(make([]byte, 1)) // its arguments can be read
		}
		if err != nil {
			t.Fatal(err)
		}
		if args, err := procStrings(p.Process.Pid, "cmdline"); !errors.Is(err, c.want) || err == nil && len(args) != len(c.args)+4 {
			t.Errorf("%d arguments: %d were read, %v, want %v", len(c.args), len(args), err, c.want)
		}
		_ = errors.Join(end.Close(), p.Wait())
	}
}

// Close ends a call although a process outside of the container has the other end of its connection, and although all
// further calls wait.
func TestCloseEndsAConnectionThatSomebodyKeeps(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "broker") // an address holds 108 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	listen, err := fdsock.Listen(filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	b := newBroker(Options{}, listen, restrictions{})
	ours, theirs, err := fdsock.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if !b.begin(ours) {
		t.Fatal("no connection is served")
	}
	b.served.Go(func() {
		defer b.end(ours)
		_, _, _ = ours.Receive() // until Close
	})
	for range maxCalls {
		b.slots <- struct{}{}
	}
	b.served.Go(b.accept)
	began := time.Now()
	if err := b.Close(); err != nil || time.Since(began) >= lastCalls {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if b.begin(ours) {
		t.Error("a connection is served after Close")
	}
}
