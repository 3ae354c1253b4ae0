package engine_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/treetest"
)

// A modelPlace is a backend, and what it stands on.
type modelPlace struct {
	name string
	// asks is the backend to ask for; "" takes what is chosen.
	asks   string
	frozen bool
	// work is the filesystem that the workspace lies on, with its options; "" for
	// the one that the state lies on.
	work []string
	// ready makes the workspace what the backend needs.
	ready func(t *testing.T, b *bench)
}

func modelPlaces() []modelPlace {
	return []modelPlace{
		{name: "overlay"},
		{name: "plain", asks: "plain", frozen: true, work: []string{"ext4"}},
		{name: "btrfs", asks: "btrfs", frozen: true, work: []string{"btrfs", "user_subvol_rm_allowed"}},
		{name: "pool", asks: "pool", frozen: true, ready: func(t *testing.T, b *bench) { intoPool(t, b, false) }},
		{name: "pool, adopted", asks: "pool", frozen: true, ready: func(t *testing.T, b *bench) { intoPool(t, b, true) }},
	}
}

const modelDisks = "SNAPFS_TEST_MODEL_DISKS"

// disks are where the workspace and the state go: in memory, where there is room.
func (p *modelPlace) disks(t *testing.T, owner int) (work, state string) {
	disk := func(fs string, options ...string) string {
		dir := treetest.Small(t, fs, 2<<30, options...)
		if err := os.RemoveAll(filepath.Join(dir, "lost+found")); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, owner, -1); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	state = disk("ext4")
	if p.work == nil {
		return state, state
	}
	return disk(p.work[0], p.work[1:]...), state
}

// TestNoEditOfTheUsersIsEverLost plays random scripts against the model, on every
// backend, as root and as an ordinary user. A failure shrinks to a short script,
// which is shown with its seed; -rapid.seed plays it once more, -rapid.checks so
// many, and SNAPFS_TEST_LONG goes on for longer.
func TestNoEditOfTheUsersIsEverLost(t *testing.T) {
	for _, place := range modelPlaces() {
		t.Run(place.name, func(t *testing.T) {
			treetest.NeedRoot(t)
			work, state := place.disks(t, 0)
			treetest.Leaks(t, state) // the newest base stays with the work
			place.play(t, work, state, "root")
		})
		if place.ready != nil {
			continue // a pool takes root
		}
		if os.Getenv(modelDisks) == "" && place.frozen && !treetest.Long(t) {
			continue // as an ordinary user, make test plays on a live base alone
		}
		t.Run(place.name+", user", func(t *testing.T) {
			if disks := os.Getenv(modelDisks); disks != "" {
				work, state, _ := strings.Cut(disks, ":")
				place.play(t, work, state, "user")
				return
			}
			treetest.NeedRoot(t) // for the disks
			a := treetest.User(t)
			work, state := place.disks(t, a.UID)
			treetest.RunAs(t, a, t.Name(), treetest.WithEnv(append(rapidEnv(), modelDisks+"="+work+":"+state)...))
		})
	}
}

func (p *modelPlace) play(t *testing.T, work, state, who string) {
	b := benchIn(t, work, state)
	if p.ready != nil {
		p.ready(t, b)
	}
	records, err := catalog.Open(b.state)
	if err != nil {
		t.Fatal(err)
	}
	play := &modelPlay{
		T: t, b: b, records: records, backend: p.name + " (" + who + ")", asks: p.asks, frozen: p.frozen, asked: len(rapidEnv()) > 0,
		tally: map[string]int{}, took: map[string]time.Duration{},
	}
	play.play()
}

// rapidEnv is what the command line and the environment say about rapid, for a
// child.
func rapidEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return !strings.HasPrefix(v, "RAPID_") })
	flag.Visit(func(f *flag.Flag) {
		if name, ok := strings.CutPrefix(f.Name, "rapid."); ok {
			env = append(env, "RAPID_"+strings.ToUpper(name)+"="+f.Value.String())
		}
	})
	return env
}
