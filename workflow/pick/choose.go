package pick

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
)

// A Hunk is one hunk of the change of a text file, which a program can promote without the others.
type Hunk struct {
	// ID identifies the hunk by the path of the file and by its text.
	ID   string
	Path string // absolute
	Text string // the hunk, as in a patch
}

// A Choice says by path, which is absolute, of which changed text files only some hunks are promoted: those
// with the listed IDs.
type Choice map[string][]string

// hunkOf returns the hunk about which q asks; false for a question about a whole file.
func hunkOf(q Question) (h Hunk, ok bool, err error) {
	if q.Hunk == nil {
		return h, false, nil
	}
	var text strings.Builder
	if err := q.Hunk(&text); err != nil {
		return h, false, err
	}
	sum := sha256.Sum256([]byte(q.Path + "\x00" + text.String()))
	return Hunk{ID: hex.EncodeToString(sum[:12]), Path: q.Path, Text: text.String()}, true, nil
}

// maxHunks is how many hunks, parts of the changes of text files, [Hunks] lists at most. With more it returns
// ErrInvalid.
const maxHunks = 10_000

// Hunks lists the hunks of the changed text files of the sandbox called name, or of those that the patterns of
// only select. It changes nothing. Errors: ErrInvalid for more than 10,000 hunks, and those of [Promote].
func Hunks(ctx context.Context, e *engine.Engine, name string, only []string) (list []Hunk, err error) {
	err = picking(ctx, e, name, only, func(q Question) (Answer, error) {
		h, ok, err := hunkOf(q)
		if ok {
			list = append(list, h)
		}
		if len(list) > maxHunks {
			err = errs.New("listing hunks", name, errs.ErrInvalid, `it has more than 10,000 hunks; name some files in "only"`)
		}
		return Leave, err
	}, func(*picker) error { return nil })
	return list, err
}

// asker returns an Asker that answers the questions which changes to promote by the choice, and takes all
// that the choice does not name. missing, called after the last question, returns an error if the sandbox
// called name has not each chosen hunk, or no hunk of a named file, any more.
func (c Choice) asker(name string) (ask Asker, missing func() error) {
	open, asked := map[string]map[string]bool{}, map[string]bool{}
	for path, ids := range c {
		open[path] = map[string]bool{}
		for _, id := range ids {
			open[path][id] = true
		}
	}
	ask = func(q Question) (Answer, error) {
		ids, named := open[q.Path]
		if !named {
			return Take, nil
		}
		h, ok, err := hunkOf(q)
		asked[q.Path] = asked[q.Path] || ok
		if err != nil || !ok || !ids[h.ID] {
			return Leave, err
		}
		delete(ids, h.ID)
		return Take, nil
	}
	return ask, func() error {
		for path, ids := range open {
			if len(ids) > 0 || !asked[path] {
				return &errs.Error{Op: "picking hunks", Subject: name, Path: path, Kind: errs.ErrDrifted, Err: errChanged}
			}
		}
		return nil
	}
}

// errChanged is the cause of an error about a hunk that a person chose and that the sandbox no longer has.
var errChanged = errors.New("the sandbox has not all chosen hunks any more; list the hunks again")

// errNothing is the error of a promotion of hunks from the sandbox called name for which the person chose
// none.
func errNothing(name string) error {
	return errs.New("picking hunks", name, errs.ErrInvalid, "nothing is chosen")
}

// Plan returns the plan of the promotion, from the sandbox called name, that [PromoteChosen] carries out. It
// changes nothing. Errors: ErrDrifted if a chosen hunk is not there any more; those of
// [reconcile.Reconciler.PlanOf].
func Plan(ctx context.Context, e *engine.Engine, name string, o reconcile.PlanOptions, c Choice) (plan *reconcile.Plan, err error) {
	ask, missing := c.asker(name)
	err = picking(ctx, e, name, o.Only, ask, func(p *picker) error {
		if err := missing(); err != nil {
			return err
		}
		if len(p.picked) == 0 {
			return errNothing(name)
		}
		o.Only, o.Files = p.picked, p.fork.Name
		plan, err = e.Reconcile.PlanOf(ctx, name, o)
		return err
	})
	return plan, err
}

// PromoteChosen promotes the changes of the sandbox called name that o.Only selects, as [Promote] does. Of the
// files that the choice names it promotes only the chosen hunks. Errors: ErrDrifted if a chosen hunk is not
// there any more, or if the plan is not o.Plan; those of Promote.
func PromoteChosen(ctx context.Context, e *engine.Engine, name string, o reconcile.PromoteOptions, c Choice) (Result, error) {
	ask, missing := c.asker(name)
	r, err := promotePicked(ctx, e, name, o, ask, missing)
	if err == nil && !r.Picked {
		err = errNothing(name)
	}
	return r, err
}
