package walls

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/snapfs/snapfs/engine/prove"
	"github.com/snapfs/snapfs/internal/treetest"
)

// For each wall there is a build without it, in which doctor --prove says so: in
// the wall's own lines, and in no other.
func TestNoWallGoesMissingUnnoticed(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedProgram(t, "ip", "btrfs")
	dir := treetest.Dir(t)
	repo, err := filepath.Abs("../..")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), build(dir, repo))
	}
	if err != nil {
		t.Fatal(err)
	}
	network := newNetwork(t)
	counting, _ := treetest.Projects(t, "ext4", 64<<20)
	btrfs := treetest.Btrfs(t)
	account := treetest.User(t)
	treetest.Leaks(t)
	whole := treetest.Long(t)
	for _, d := range []*doctor{
		{who: root, home: treetest.Dir(t), counting: counting},
		{who: user, home: treetest.Dir(t), as: &syscall.Credential{Uid: uint32(account.UID), Gid: uint32(account.GID)}},
	} {
		d.whole = whole
		d.program, d.network, d.held = filepath.Join(dir, "snapfs"), network, filepath.Join(btrfs, names[d.who])
		t.Run(names[d.who], func(t *testing.T) { d.allWalls(t) })
	}
}

// A doctor is whom the broken program works for.
type doctor struct {
	who           who
	as            *syscall.Credential
	program, home string
	whole         bool // whether each build is asked for every wall
	network       *os.File
	counting      string    // a filesystem with project quotas, where there is one
	held          string    // a directory on btrfs, in which the workspace of [beside] is a subvolume
	devices       [2]string // of a network that asks first and of FUSE, for an ordinary user; "" for root
}

func (d *doctor) allWalls(t *testing.T) {
	d.furnish(t)
	if d.who == root {
		d.run(t, "", pooled, "pool", "create", "--size", "1G")
		t.Cleanup(func() { d.run(t, "", pooled, "pool", "rm") })
		if held := d.prove(t, "", pooled, []string{"disk"}); !held[0].Held {
			t.Fatalf("nothing is left out, and it does not hold: %+v", held)
		}
	}
	var walls []string // that a plain sandbox has
	excused := d.excused(t)
	for _, r := range d.prove(t, "", plain, nil) {
		if !r.Held {
			t.Fatalf("nothing is left out, and it does not hold: %+v", r)
		}
		if !slices.Contains(apart, r.Probe) {
			walls = append(walls, r.Probe)
		}
	}
	for _, path := range d.shown() {
		if r := d.prove(t, "", shown, []string{"read-only"})[0]; !r.Held || !strings.Contains(r.Tried, path) {
			t.Errorf("what is shown as it really is, %s: %+v", path, r)
		}
	}
	for _, p := range prove.List() {
		if why := notHere[p.Name]; d.who == user && why != "" && len(p.Args) == 0 && !d.bare(t, p.Name).Held {
			t.Errorf("%s: it holds nowhere, and no build is without it, because %s", p.Name, why)
		}
	}
	t.Run("without", func(t *testing.T) {
		for i, w := range table() {
			// What is there for both is left out for one of them in make test, in turn.
			mine := w.who == d.who || w.who == everybody && (d.whole || i%2 == int(d.who)%2)
			if mine && !excused[w.falls[0]] {
				t.Run(strings.ReplaceAll(w.parts, " ", "+"), func(t *testing.T) {
					t.Parallel()
					d.missing(t, w, walls)
				})
			}
		}
	})
}

// excused are the lines with an excuse that is one still; where it no longer is, the
// wall has to hold.
func (d *doctor) excused(t *testing.T) map[string]bool {
	lines := map[string]bool{}
	for _, x := range excuses {
		if x.who != d.who {
			continue
		}
		for _, r := range d.prove(t, "", x.on, x.lines) {
			counts := x.on == counting && d.counting != ""
			switch lines[r.Probe] = !r.Held && !counts && strings.Contains(r.Happened, x.says); {
			case lines[r.Probe]:
				t.Logf("%s is not tried: %s", r.Probe, x.why)
			case !r.Held:
				t.Errorf("%s: it does not hold, and not because %s: %s", r.Probe, x.why, r.Happened)
			}
		}
	}
	return lines
}

// often are walls that make test looks for in each build, beside the one that the build lacks. make test-long looks
// for all of them.
var often = []string{"mount", "masked", "loopback"}

// missing has the doctor look at a sandbox without a wall.
func (d *doctor) missing(t *testing.T, w wall, walls []string) {
	fall := slices.Concat(w.falls, w.also)
	only := walls
	switch w.on {
	case limits, pooled, counting, served:
		only = append(slices.Clone(w.falls), often...) // the others are tried often enough
	case edge:
		only = []string{"name", "ipv4", "ipv6", "resolver", "metadata", "loopback", "abstract-socket", "tls-name", "http-name", "tls-record", "http-blank"}
	case requests:
		only = []string{"secret", "tokens", "http-method", "http-path", "labels", "ask", "base-url", "aws"}
	case plain, shown, beside:
		if slices.Contains(fall, "other-sandbox") { // which costs the others a start
			only = append(slices.Clone(walls), "other-sandbox")
		}
		if !d.whole {
			only = slices.DeleteFunc(slices.Clone(only), func(name string) bool {
				return !slices.Contains(fall, name) && !slices.Contains(often, name)
			})
		}
	}
	if slices.Contains(strings.Fields(w.parts), "users") { // without it, the supervisor may make no socket in the container
		only = slices.DeleteFunc(slices.Clone(only), func(name string) bool { return name == "tools-arguments" })
	}
	for _, r := range d.prove(t, w.parts, w.on, only) {
		switch should := slices.Contains(fall, r.Probe); {
		case !should && !r.Held:
			t.Errorf("it is there, and does not hold: %+v", r)
		case should && (strings.Contains(r.Happened, "could not") || r.Happened == "") && !r.Busy:
			t.Errorf("it was not tried: %+v", r)
		case should && r.Held && d.bare(t, r.Probe).Held: // this kernel has no such thing
		case should && r.Held:
			t.Errorf("it is not there, and holds: %+v", r)
		}
	}
}

// prove runs doctor --prove without parts of the program.
func (d *doctor) prove(t *testing.T, parts string, on kind, only []string) []prove.Report {
	t.Helper()
	args := []string{"doctor", "--prove", "--json"}
	if only == nil {
		for _, p := range prove.List() {
			if !slices.Contains(slow, p.Name) {
				only = append(only, p.Name)
			}
		}
	}
	args = append(args, "--only", strings.Join(only, ","))
	if on == served {
		args = append(args, "--backend", "fusecow")
	}
	if on == edge || on == requests {
		args = append(args, "--net", "allow:allowed.example:443")
	}
	for _, name := range only {
		args = append(args, asked[name]...)
	}
	out, status := d.run(t, parts, on, args...)
	var reports []prove.Report
	held := true
	for decode := json.NewDecoder(bytes.NewReader(out)); decode.More(); {
		var r prove.Report
		if err := decode.Decode(&r); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		reports = append(reports, r)
		held = held && r.Held
	}
	if len(reports) != len(only) || (status == 0) != held {
		t.Fatalf("status %d and %d reports of %d: %s", status, len(reports), len(only), out)
	}
	return reports
}

// slow are those of which each takes seconds, or wants a request of its own; and
// apart are those that have a sandbox to themselves.
var (
	slow  = []string{"cpus", "cpu-time", "time", "disk", "inodes", "write-rate", "read-rate", "write-ops", "read-ops", "tls-name", "http-name", "tls-record", "http-blank", "secret", "tokens", "http-method", "http-path", "labels", "ask", "base-url", "aws"}
	apart = []string{"memory", "memory-files", "pids", "files", "other-sandbox"}
)

// asked are the limits that are tried only where they are asked for.
var asked = map[string][]string{
	"disk": {"--disk", "2M"}, "inodes": {"--inodes", "100"},
	"write-rate": {"--io-write", "2M/s"}, "read-rate": {"--io-read", "2M/s"},
	"write-ops": {"--io-write-ops", "50"}, "read-ops": {"--io-read-ops", "50"},
}

// bare runs a probe where there is no sandbox.
func (d *doctor) bare(t *testing.T, name string) (r prove.Report) {
	t.Helper()
	out, _ := d.run(t, "", plain, "probe", name)
	return prove.Read(name, out, false)
}
