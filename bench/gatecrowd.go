//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/snapfs/snapfs/bench/timing"
	"github.com/snapfs/snapfs/engine/hostfs"
)

// crowdChecks returns the checks of performance promises that make a hundred or a thousand sandboxes and
// remove them.
func (r *referee) crowdChecks() []check {
	var list []check
	for _, s := range []*setting{&r.overlay, &r.btrfsRoot} {
		name := strings.SplitN(s.Name, ",", 2)[0]
		list = append(list,
			check{ // the first one: beside the deletions that the others leave behind, each round takes 20 times as long
				name: "after 1,000 rounds of new and rm on " + name + ": last 100 to first 100", limit: 1.2, held: 2, unit: "×",
				noise: "0.2 of it is for noise", measure: r.rounds(s),
			},
			check{name: "100 sandboxes at once on " + name, limit: 1, held: 4, unit: "s", measure: r.hundred(s)},
			check{name: "1,000 sandboxes on " + name + ", 100 at once: those that could not be made", exact: true, limit: 0, unit: "", measure: r.thousand(s)},
			check{
				name: "left behind by all of them on " + name, exact: true, limit: 0, unit: "mounts, loop devices, subvolumes and files",
				noise: fmt.Sprintf("%d files preserved for reuse do not count", spares), measure: r.leaks(s),
			})
	}
	return append(list, check{name: "100 processes `snapfs new` at once on overlay", unjudged: true, unit: "s", measure: r.hundredProcesses})
}

// thousands is how many sandboxes the checks with very many of them make: 1000, or 50 with Options.Quick.
func (r *referee) thousands() int {
	if r.Quick {
		return 50
	}
	return 1000
}

func (r *referee) hundred(s *setting) measure {
	return func(ctx context.Context) (float64, string, error) {
		dir, err := r.tree(ctx, *s, smallest)
		if err != nil {
			return 0, "", err
		}
		if err := r.settle(ctx, *s, dir); err != nil {
			return 0, "", err
		}
		each, total, err := r.newCrowd(ctx, r.e, *s, dir, 0, crowd)
		sum := timing.Summarise(each)
		return total.Seconds(), fmt.Sprintf("each p50 %s, p99 %s", timing.Ms(sum.P50), timing.Ms(sum.P99)), errors.Join(err, removeNames(ctx, r.e))
	}
}

func (r *referee) hundredProcesses(ctx context.Context) (float64, string, error) {
	dir, err := r.tree(ctx, r.overlay, smallest)
	if err != nil {
		return 0, "", err
	}
	p := r.at(r.overlay, dir)
	defer p.close()
	var list []timing.Subject
	for i := range crowd {
		list = append(list, p.timed("new", "new", fmt.Sprintf("crowd-%d", i)))
	}
	if p.err != nil {
		return 0, "", p.err
	}
	each, total, err := timing.Together(ctx, crowd, crowd, func(ctx context.Context, i int) error { _, err := list[i].Do(ctx); return err })
	sum := timing.Summarise(each)
	return total.Seconds(), fmt.Sprintf("each p50 %s, p99 %s", timing.Ms(sum.P50), timing.Ms(sum.P99)), errors.Join(err, removeNames(ctx, r.e))
}

// thousand returns the measuring function of a check: it makes a thousand sandboxes in the setting s and
// counts those that are then missing.
func (r *referee) thousand(s *setting) measure {
	return func(ctx context.Context) (float64, string, error) {
		dir, err := r.tree(ctx, *s, smallest)
		if err != nil {
			return 0, "", err
		}
		n := r.thousands()
		_, total, made := r.newCrowd(ctx, r.e, *s, dir, 1, n)
		names, err := r.e.Names()
		if err != nil {
			return 0, "", err
		}
		detail := fmt.Sprintf("%d made in %.1f s", len(names), total.Seconds())
		if made != nil {
			detail += ": " + strings.SplitN(made.Error(), "\n", 2)[0]
		}
		return float64(n - len(names)), detail, removeNames(ctx, r.e)
	}
}

// rounds returns the measuring function of a check: it makes and removes a sandbox a thousand times in the
// setting s. Its value is the time for one of the last hundred, relative to one of the first hundred.
func (r *referee) rounds(s *setting) measure {
	return func(ctx context.Context) (float64, string, error) {
		dir, err := r.tree(ctx, *s, smallest)
		if err != nil {
			return 0, "", err
		}
		if err := r.settle(ctx, *s, dir); err != nil {
			return 0, "", err
		}
		n := r.thousands()
		var took []time.Duration
		for i := range n {
			name := fmt.Sprintf("round-%d", i)
			began := time.Now()
			if _, err := r.e.New(ctx, hostfs.Request{Name: name, Workspace: dir, Backend: s.Driver, Policy: policy()}); err != nil {
				return 0, "", err
			}
			took = append(took, time.Since(began))
			if err := r.e.Remove(ctx, name); err != nil {
				return 0, "", err
			}
		}
		if _, err := r.e.Collect(ctx); err != nil { // so that the next check is alone
			return 0, "", err
		}
		first, last := timing.Median(took[:n/10]), timing.Median(took[n-n/10:])
		return timing.Ratio(last, first), fmt.Sprintf("first %s, last %s", timing.Ms(first), timing.Ms(last)), nil
	}
}
