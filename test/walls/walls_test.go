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
	treetest.NeedProgram(t, "ip")
	dir := treetest.Dir(t)
	repo, err := filepath.Abs("../..")
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), build(dir, repo))
	}
	if err != nil {
		t.Fatal(err)
	}
	network := newNetwork(t)
	account := treetest.User(t)
	treetest.Leaks(t)
	for _, d := range []*doctor{
		{who: root, home: treetest.Dir(t)},
		{who: user, home: account.Home, as: &syscall.Credential{Uid: uint32(account.UID), Gid: uint32(account.GID)}},
	} {
		d.program, d.network = filepath.Join(dir, "snapfs"), network
		t.Run([]string{root: "root", user: "user"}[d.who], func(t *testing.T) { d.allWalls(t) })
	}
}

// A doctor is whom the broken program works for.
type doctor struct {
	who           who
	as            *syscall.Credential
	program, home string
	network       *os.File
}

func (d *doctor) allWalls(t *testing.T) {
	d.furnish(t)
	if d.who == root {
		d.run(t, "", "pooled", "pool", "create", "--size", "1G")
		t.Cleanup(func() { d.run(t, "", "pooled", "pool", "rm") })
		if held := d.prove(t, "", pooled, []string{"disk"}); !held[0].Held {
			t.Fatalf("nothing is left out, and it does not hold: %+v", held)
		}
	}
	var walls []string // that a plain sandbox has
	noticed := map[string]bool{}
	for _, r := range d.prove(t, "", plain, nil) {
		if !r.Held {
			t.Fatalf("nothing is left out, and it does not hold: %+v", r)
		}
		if !slices.Contains(counted, r.Probe) {
			walls = append(walls, r.Probe)
		}
	}
	for _, w := range table() {
		for _, name := range w.falls {
			noticed[name] = noticed[name] || w.who == everybody || w.who == d.who
		}
	}
	for _, p := range prove.List() {
		switch {
		case noticed[p.Name], elsewhere[p.Name] != "", d.who == user && notHere[p.Name] != "":
		case !d.bare(t, p.Name).Held:
			t.Errorf("%s: no build is without it", p.Name)
		}
	}
	t.Run("without", func(t *testing.T) {
		for _, w := range table() {
			if w.who == everybody || w.who == d.who {
				t.Run(strings.ReplaceAll(w.parts, " ", "+"), func(t *testing.T) {
					t.Parallel()
					d.missing(t, w, walls)
				})
			}
		}
	})
}

// elsewhere is what a sandbox has only where somebody asks for it, and the host can.
var elsewhere = map[string]string{
	"disk": "root", "write-rate": "root", "tls-name": "root", "http-name": "root", // for whom there is a wall
	"inodes":    "engine/prove, on a filesystem with few, and the conformance suite of backends",
	"read-only": "engine/prove", "other-sandbox": "engine/prove",
	"read-rate": "engine/prove", "write-ops": "the same", "read-ops": "the same",
}

// missing has the doctor look at a sandbox without a wall.
func (d *doctor) missing(t *testing.T, w wall, walls []string) {
	fall := slices.Concat(w.falls, w.also)
	only := walls
	switch w.on {
	case limits, pooled:
		only = append(slices.Clone(w.falls), "mount", "masked", "loopback") // the others are tried often enough
	case edge:
		only = []string{"name", "ipv4", "ipv6", "resolver", "metadata", "loopback", "abstract-socket", "tls-name", "http-name"}
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
	state := "state"
	switch on {
	case edge:
		args = append(args, "--net", "allow:allowed.example:443")
	case limits:
		if slices.Contains(only, "write-rate") {
			args = append(args, "--io-write", "2M/s")
		}
	case pooled:
		args, state = append(args, "--disk", "2M"), "pooled"
	case plain:
	}
	out, status := d.run(t, parts, state, args...)
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
// counted are other limits.
var (
	slow    = []string{"cpus", "cpu-time", "time", "disk", "inodes", "write-rate", "read-rate", "write-ops", "read-ops", "read-only", "tls-name", "http-name", "other-sandbox"}
	counted = []string{"memory", "pids", "files"}
)

// bare runs a probe where there is no sandbox.
func (d *doctor) bare(t *testing.T, name string) (r prove.Report) {
	t.Helper()
	out, _ := d.run(t, "", "state", "probe", name)
	return prove.Read(name, out, false)
}
