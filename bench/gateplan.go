//go:build linux

package bench

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/bench/tree"
	"github.com/snapfs/snapfs/engine/reconcile"
)

// planChecks returns the checks of how fast a promotion plan is computed.
func (r *referee) planChecks() []check {
	var list []check
	for i, s := range []*setting{&r.overlay, &r.btrfsRoot} {
		name := strings.SplitN(s.Name, ",", 2)[0]
		list = append(list, check{
			name:  fmt.Sprintf("plan of %d changed files of 0 to 4 KiB in the largest tree, on %s, by the engine, to reading and hashing them thrice", tree.ChangedFiles, name),
			limit: 2, held: []float64{12, 14}[i], unit: "×", measure: r.planToHash(s),
		})
	}
	return list
}

// planToHash returns the measuring function of a check: the time that Engine.PlanOf takes for a hundred
// replaced files, relative to hashing a hundred files three times in one thread. Each file lies in a
// directory of its own and was replaced by one of equal size.
func (r *referee) planToHash(s *setting) measure {
	files := r.largest()
	return r.inSandbox(s, files, func(ctx context.Context, name string, p *processes) (float64, string, error) {
		if err := execWait(ctx, r.e, name, p.dir, "/bin/sh", "-c", editScript(files)); err != nil {
			return 0, "", err
		}
		steps := 0
		plan := timing.Subject{Name: "plan", Do: timing.Timing(func(ctx context.Context) error {
			c, err := r.e.Reconcile.PlanOf(ctx, name, reconcile.PlanOptions{})
			if err == nil {
				steps = len(c.Steps)
			}
			return err
		})}
		hash := timing.Subject{Name: "hash", Do: timing.Timing(func(context.Context) error { return hashThrice(p.dir, files) })}
		pace := r.many()
		pace.Rounds = min(pace.Rounds, 30)
		m, err := timing.Medians(ctx, pace, plan, hash, p.timed("snapfs plan", "plan", name), p.timed("snapfs version", "version"))
		if err == nil && steps < tree.ChangedFiles {
			err = fmt.Errorf("%d steps for %d changed files", steps, tree.ChangedFiles)
		}
		if err != nil {
			return 0, "", err
		}
		return timing.Ratio(m[0], m[1]), fmt.Sprintf("plan %s, read and hash thrice %s, %d files; as a whole process %s, of which a start of snapfs %s",
			timing.Ms(m[0]), timing.Ms(m[1]), files, timing.Ms(m[2]), timing.Ms(m[3])), nil
	})
}

// editScript returns a shell script that edits a hundred of the tree's files as editors do: it writes a new
// file and renames it over the old one.
func editScript(files int) string {
	names := make([]string, tree.ChangedFiles)
	for i := range names {
		names[i] = tree.FileOf(tree.Spread(i, files))
	}
	return "sed -i s/a/A/ " + strings.Join(names, " ")
}

func hashThrice(dir string, files int) error {
	for range 3 {
		for i := range tree.ChangedFiles {
			data, err := os.ReadFile(filepath.Join(dir, tree.FileOf(tree.Spread(i, files))))
			if err != nil {
				return err
			}
			sha256.Sum256(data)
		}
	}
	return nil
}
