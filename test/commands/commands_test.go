package commands

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/snapfs/snapfs/internal/treetest"
)

// A play is one run: workers, a person, and a killer, on one state directory.
type play struct {
	t              *testing.T
	program, state string
	spaces         []*workspace
	kinds          []kind
	left           atomic.Int64 // commands still to begin
	number         atomic.Int64 // of names and tokens
	broken         atomic.Bool

	mu     sync.Mutex
	script []string
	errors map[string]int
}

// TestRandomCommandsAndKillsLoseNoEdit plays random commands of several workers, with a person
// who edits meanwhile and processes that are killed. SNAPFS_COMMANDS is "COMMANDS KILLS SEED
// WORKERS BACKENDS",
// and SNAPFS_COMMANDS_KINDS limits the kinds of commands ("exec promote").
func TestRandomCommandsAndKillsLoseNoEdit(t *testing.T) {
	treetest.NeedRoot(t) // for the disks
	treetest.NeedFS(t, "btrfs", "ext4")
	options := []string{strconv.Itoa(treetest.Budget(t, 40, 600)), strconv.Itoa(treetest.Budget(t, 3, 45)), strconv.Itoa(treetest.Budget(t, 1, int(time.Now().Unix()))), "4", "overlay,fusecow,btrfs,plain"}
	copy(options, strings.Fields(os.Getenv("SNAPFS_COMMANDS")))
	number := func(i int) int {
		n, err := strconv.Atoi(options[i])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	commands, kills, seed, workers := number(0), number(1), number(2), number(3)
	t.Logf("SNAPFS_COMMANDS=%q", strings.Join(options, " "))
	p := &play{t: t, program: treetest.Program(), errors: map[string]int{}}
	p.state = treetest.Small(t, "ext4", 2<<30) + "/state"
	for _, backend := range strings.Split(options[4], ",") {
		p.spaces = append(p.spaces, newWorkspace(t, backend))
	}
	only := strings.Fields(os.Getenv("SNAPFS_COMMANDS_KINDS"))
	p.kinds = slices.DeleteFunc(kinds(), func(k kind) bool { return len(only) > 0 && !slices.Contains(only, k.name) })
	treetest.Leaks(t, p.state)
	p.left.Store(int64(commands))
	p.all(workers, kills, commands, uint64(seed))
	p.ends()
}

// all plays until all commands have been played or an edit has been lost.
func (p *play) all(workers, kills, commands int, seed uint64) {
	var work, around sync.WaitGroup
	for i := range workers {
		w := &worker{p, rand.New(rand.NewPCG(seed, uint64(i)))}
		work.Go(func() {
			for p.left.Add(-1) >= 0 && !p.broken.Load() {
				w.one()
			}
		})
	}
	done := make(chan struct{})
	around.Go(func() { p.person(done, rand.New(rand.NewPCG(seed, 1<<32))) })
	around.Go(func() { p.killer(done, kills, commands, rand.New(rand.NewPCG(seed, 1<<33))) })
	work.Wait()
	close(done)
	around.Wait()
}

// person edits the real trees at random moments.
func (p *play) person(done chan struct{}, r *rand.Rand) {
	for n := 0; ; n++ {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(r.IntN(300)) * time.Millisecond):
		}
		ws := p.spaces[r.IntN(len(p.spaces))]
		what, err := ws.personEdits(r, n)
		p.problem(err)
		if what != "" {
			p.note("a person writes "+what, time.Now(), nil, "")
		}
	}
}

// killer spreads the kills over the commands.
func (p *play) killer(done chan struct{}, kills, commands int, r *rand.Rand) {
	for killed := 0; killed < kills; {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(r.IntN(40)) * time.Millisecond):
		}
		begun := commands - int(p.left.Load())
		if begun*kills < killed*commands {
			continue
		}
		all := programs(treetest.Built())
		pids := make([]int, 0, len(all))
		for pid := range all {
			pids = append(pids, pid)
		}
		if len(pids) == 0 {
			continue
		}
		slices.Sort(pids)
		pid := pids[r.IntN(len(pids))]
		if kill(pid) == nil {
			killed++
			p.note(fmt.Sprintf("kill -9 %d, %.120s", pid, all[pid]), time.Now(), nil, "")
		}
	}
}

// check reports the tokens that are gone, once what a kill has left half done is completed.
func (p *play) check(ws *workspace) {
	ws.real.Lock()
	defer ws.real.Unlock()
	p.checkLocked(ws)
}

func (p *play) checkLocked(ws *workspace) {
	for range 5 { // what a kill has left half done may still be taken back, and a kill may hit gc itself
		if _, ok := p.snapfs(ws, "gc"); ok {
			break
		}
	}
	gone, err := ws.missing()
	for range 5 {
		if len(gone) == 0 {
			break
		}
		p.snapfs(ws, "gc")
		gone, err = ws.missing()
	}
	p.problem(err)
	if len(gone) > 0 && !p.broken.Swap(true) {
		p.t.Errorf("%s in %s: lost %s", ws.backend, ws.dir, strings.Join(gone, ", "))
		p.fail()
	}
}

// fail prints the commands, and waits where somebody wants to look at the trees.
func (p *play) fail() {
	p.mu.Lock()
	lines := slices.Clone(p.script)
	p.mu.Unlock()
	path := os.TempDir() + "/snapfs-commands.log"
	_ = os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
	p.t.Logf("the commands are in %s; the last:\n%s", path, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	if os.Getenv("SNAPFS_COMMANDS_KEEP") != "" {
		p.t.Logf("state %s, kept until SIGUSR1 to %d", p.state, os.Getpid())
		fmt.Fprintf(os.Stderr, "kept: state %s, pid %d\n", p.state, os.Getpid())
		wait := make(chan os.Signal, 1)
		signal.Notify(wait, syscall.SIGUSR1)
		<-wait
	}
}

// ends removes all sandboxes, and checks that all is well without them.
func (p *play) ends() {
	for _, ws := range p.spaces {
		p.check(ws)
	}
	for range 3 {
		p.snapfs(p.spaces[0], "rm", "--all", "--any", "--yes")
	}
	if out, ok := p.snapfs(p.spaces[0], "gc"); !ok {
		p.t.Errorf("gc at the end: %s", out)
	}
	if out, ok := p.snapfs(p.spaces[0], "ls", "--json"); !ok || strings.Contains(out, `"name"`) {
		p.t.Errorf("sandboxes are left: %s", out)
	}
	for _, ws := range p.spaces {
		p.check(ws)
	}
	landed := 0
	for _, ws := range p.spaces {
		for token := range ws.must {
			if strings.HasPrefix(token, "s:") {
				landed++
			}
		}
	}
	p.t.Logf("%d edits of sandboxes are in the real trees at the end", landed)
	if len(p.script) > 500 && landed == 0 {
		p.t.Error("no edit of a sandbox has come to a real tree")
	}
	for what, n := range p.errors {
		p.t.Logf("%4d × %s", n, what)
	}
}

func (p *play) name(prefix string) string { return prefix + strconv.FormatInt(p.number.Add(1), 10) }

func (p *play) problem(err error) {
	if err != nil {
		p.broken.Store(true)
		p.t.Error(err)
	}
}

// note adds a line to the script.
func (p *play) note(what string, began time.Time, err error, out string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := fmt.Sprintf("%s +%v %s", began.Format("05.000000"), time.Since(began).Round(time.Millisecond), what)
	if err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(out), "\n")
		line += fmt.Sprintf(" => %v: %.300s", err, strings.TrimSpace(out))
		words := strings.Fields(what)
		p.errors[words[min(2, len(words)-1)]+": "+digits.ReplaceAllString(first, "N")]++
	}
	p.script = append(p.script, line)
	if strings.Contains(out, "goroutine ") || strings.Contains(out, "panic: ") {
		p.t.Errorf("%s panicked: %s", what, out)
		p.broken.Store(true)
	}
}

var digits = regexp.MustCompile(`[0-9]+`)
