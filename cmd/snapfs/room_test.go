package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A queued is a `snapfs run` that waits for room.
type queued struct {
	cmd    *exec.Cmd
	before int // how many waited before it when it came
	said   []byte
}

// TestAHundredAtOnceAreLetInAsThereIsRoom: two run at once, each on half of this host's
// processors. While they hold their places a hundred come, and thirty in make test; one that waits and one that
// runs are killed; all others end well, in time.
func TestAHundredAtOnceAreLetInAsThereIsRoom(t *testing.T) {
	treetest.NeedRoot(t) // who may have fewer processors
	b := newDesk(t)
	const places = 2
	half := "--cpus=" + strconv.FormatFloat(float64(runtime.NumCPU())/places, 'f', -1, 64)
	holders := []*background{
		b.started("run", half, "--", "sh", "-c", "echo up; exec sleep 600"),
		b.started("run", half, "--", "sh", "-c", "echo up; exec sleep 600"),
	}
	if o := b.snapfs("run", half, "--if-room", "--", "true").want(123); !strings.Contains(o.all, "processors are promised to 2 sandboxes") {
		t.Errorf("refused with: %s", o.all)
	}
	trues := func() time.Duration { return quickest(t, exec.Command, "true") }
	quiet := trues()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	line := make([]*queued, treetest.Budget(t, 30, 100))
	amid := len(line) / 2
	var all, waiting sync.WaitGroup
	for i := range line {
		q := &queued{cmd: b.command("run", "-q", half, "--queue", "--", "sh", "-c", "echo up; echo down")}
		q.cmd.Stdout, line[i] = in, q
		stderr, err := q.cmd.StderrPipe()
		if err == nil {
			err = q.cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		waiting.Add(1)
		all.Go(func() {
			r := bufio.NewReader(stderr)
			said, _ := r.ReadBytes('\n')
			if _, err := fmt.Sscanf(string(said), "snapfs: waiting for capacity, %d ahead in the queue", &q.before); err != nil && !bytes.Contains(said, []byte("first in the queue")) {
				t.Errorf("one that comes says %q", said)
			}
			waiting.Done()
			q.said, _ = io.ReadAll(r)
		})
	}
	in.Close()
	waiting.Wait()
	t.Logf("`true` takes %v while %d wait, and %v without", trues(), len(line), quiet)
	slices.SortFunc(line, func(a, b *queued) int { return a.before - b.before })
	for i, q := range line {
		if q.before != i {
			t.Fatalf("number %d says that %d wait before it", i, q.before)
		}
	}
	for _, p := range []*os.Process{line[0].cmd.Process, line[amid].cmd.Process, holders[0].cmd.Process, holders[1].cmd.Process} {
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	most, up, total := 0, 0, 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if lines.Text() == "up" {
			up++
			most, total = max(most, up), total+1
		} else {
			up--
		}
	}
	all.Wait()
	for i, q := range line {
		if err := q.cmd.Wait(); err != nil && i != 0 && i != amid {
			t.Errorf("number %d: %v\n%s", i, err, q.said)
		}
	}
	if most > places || total != len(line)-2 {
		t.Errorf("%d ran, %d at once", total, most)
	}
	for _, h := range holders {
		h.ended()
	}
	b.mended()
	b.real()
}

// quickest is the shortest of some runs of a command.
func quickest(t *testing.T, command func(string, ...string) *exec.Cmd, args ...string) time.Duration {
	t.Helper()
	var took []time.Duration
	for range 5 {
		began := time.Now()
		if out, err := command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
		took = append(took, time.Since(began))
	}
	return slices.Min(took)
}

// TestRoomOfASandboxThatIsThere: what may not be started does not wait; what runs makes
// room for more, and counts with the limits that it has now; nobody else can see it.
func TestRoomOfASandboxThatIsThere(t *testing.T) { asRoot(t, roomInside) }

func TestRoomOfASandboxThatIsThereForAnOrdinaryUser(t *testing.T) { asUserLater(t, roomInside) }

func roomInside(t *testing.T) {
	b := newDesk(t)
	all := strconv.Itoa(runtime.NumCPU())
	b.snapfs("new", "--if-room", "box").want(0)
	b.snapfs("exec", "--if-room", "box", "--", "true").want(0)
	b.snapfs("limits", "box", "--set", "ttl=1ms").want(0)
	for _, how := range []string{"--queue=1h", "--if-room"} {
		if o := b.snapfs("exec", how, "box", "--", "true").want(125); !strings.Contains(o.all, "the sandbox's time was over") {
			t.Errorf("%s: %s", how, o.all)
		}
	}
	b.snapfs("limits", "box", "--set", "ttl=none").want(0)
	b.snapfs("new", "--queue=1h", "box").want(4)
	b.snapfs("exec", "--queue", "--if-room", "box", "--", "true").want(125)

	held := b.started("exec", "box", "--", "sh", "-c", "echo up; exec sleep 600")
	b.snapfs("exec", "--if-room", "box", "--", "true").want(0) // has a place already
	counts := func(want string) {
		t.Helper()
		places, err := filepath.Glob(filepath.Join(b.state, "admission", "place-*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range places {
			f, err := os.Open(p)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(f)
			if syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil && !strings.Contains(string(text), want) {
				t.Errorf("%s is held, and says %s, want %s", p, text, want)
			}
			f.Close()
		}
	}
	counts(`"memory":0,"disk":0,"processors":0}`)
	b.snapfs("limits", "box", "--set", "memory=300M", "--set", "cpus="+all).want(0)
	counts(`"memory":314572800,"disk":0,"processors":` + all + `}`)
	for _, args := range [][]string{
		{"run", "--if-room", "--", "true"},
		{"new", "--if-room"},
		{"fork", "--if-room", "box"},
		{"race", "--if-room", "--", "true"},
		{"run", "--queue=10ms", "--", "true"},
		{"race", "-q", "--queue=10ms", "--", "true"},
	} {
		if o := b.snapfs(args...).want(123); !strings.Contains(o.all, "no room: ") {
			t.Errorf("%q: %s", args, o.all)
		}
	}
	b.snapfs("run", "--", "true").want(0) // asks for nothing
	b.snapfs("stop", "box").want(0)
	held.ended()
	b.snapfs("race", "-q", "--queue", "-n", "3", "--keep", "--", "true").want(0)
	b.snapfs("run", "--memory", "1000T", "--queue", "--", "true").want(123)
	b.real()
}
