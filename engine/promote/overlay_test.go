package promote_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/promote"
	"github.com/snapfs/snapfs/internal/treetest"
)

func TestApplyFromAnOverlayOfTheTargetItself(t *testing.T) {
	treetest.NeedRoot(t)
	treetest.NeedFS(t, "overlay")
	applied := 0
	for seed := range uint64(treetest.Budget(t, 4, 6)) {
		top := treetest.Dir(t)
		for _, d := range []string{"real", "upper", "work", "sandbox"} {
			must(t, os.Mkdir(filepath.Join(top, d), 0o755))
		}
		writer := treetest.NewWriter(seed, treetest.Powers{Root: true, ShortRenames: true, KeepOldLinks: true})
		w := &world{top: top, real: treetest.Open(t, filepath.Join(top, "real"))}
		must(t, writer.Script(150).Play(w.real))
		writer.Freeze()
		time.Sleep(diff.Racy)
		w.taken = time.Now()
		time.Sleep(diff.Racy)
		merged := filepath.Join(top, "sandbox")
		must(t, unix.Mount("overlay", merged, "overlay", 0, "redirect_dir=on,metacopy=on,index=off,lowerdir="+top+"/real,upperdir="+top+"/upper,workdir="+top+"/work"))
		func() {
			var err error
			w.sandbox, err = os.Open(merged)
			must(t, err)
			defer func() { must(t, unix.Unmount(merged, 0)) }()
			defer w.sandbox.Close()
			must(t, writer.Script(100).Play(w.sandbox))
			var skipped []string
			o := treetest.Options{NoDirTimes: true, NoLinks: true, Skip: func(path string) bool { return slices.Contains(skipped, path) }}
			changes, err := diff.Trees(t.Context(), w.real, w.sandbox, diff.Options{OverlayViews: true})
			must(t, err)
			for _, c := range changes {
				if c.New != nil && c.New.Mode&os.ModeSocket != 0 {
					skipped = append(skipped, c.Path)
				}
			}
			var want strings.Builder
			must(t, treetest.WriteManifest(&want, w.sandbox, o))
			r, err := promote.Apply(t.Context(), w.target(), w.source(), changes, options(w.live()))
			if err != nil {
				t.Logf("seed %d: %v", seed, err)
				return
			}
			applied++
			if len(r.Skipped) != len(skipped) {
				t.Errorf("skipped %q", r.Skipped)
			}
			for _, l := range treetest.Lines(want.String(), treetest.Manifest(t, w.real.Name(), o)) {
				t.Errorf("seed %d: %s", seed, l)
			}
			w.clean(t)
		}()
	}
	if applied < 3 {
		t.Errorf("only %d could be applied", applied)
	}
}
