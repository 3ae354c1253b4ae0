package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/reconcile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
)

// say adds to what came of the step that is being played.
func (m *model) say(format string, args ...any) {
	last := len(m.said) - 1
	sep := map[bool]string{true: ": ", false: ", "}[!strings.Contains(m.said[last], "→")]
	if sep == ": " {
		m.said[last], sep = m.said[last]+"  →  ", ""
	}
	m.said[last] += sep + fmt.Sprintf(format, args...)
}

var errRehearsal = errors.New("rehearsed")

// do does an operation, by its words, as the step says: as it should be, with a
// failure, or in a process that is killed. Then the next command mends.
func (m *model) do(words ...string) (r reconcile.Refreshed, err error) {
	switch {
	case m.step.killed > 0:
		r, err = m.kill(strings.Join(append([]string{"model"}, words...), " "))
	case m.step.fails > 0:
		r, err = m.fail(words)
	default:
		r, err = modelOperation(context.Background(), m.b.Engine, words)
	}
	switch {
	case err == nil:
		m.say("done")
	case errors.Is(err, errRehearsal):
		m.say("%s", map[bool]string{true: "killed", false: "failed"}[m.step.killed > 0])
		m.p.tally[map[bool]string{true: "killed half-way", false: "failed half-way"}[m.step.killed > 0]]++
	case errors.Is(err, errs.ErrConflict):
		m.say("conflict")
		m.p.tally["conflicting"]++
	default:
		m.say("%v", err)
	}
	return r, err
}

func (m *model) fail(words []string) (r reconcile.Refreshed, err error) {
	var passed atomic.Int64
	at := int64(m.step.fails)
	ctx := treetest.WithFaults(context.Background(), func(step string) error {
		if passed.Add(1) >= at && passed.Load() < at+40 { // the undoing may fail, too
			return fmt.Errorf("rehearsed at %q: %w", step, errRehearsal)
		}
		return nil
	})
	e, err := engine.Open(ctx, engine.Config{State: m.b.state, Drivers: drivers()})
	if err == nil {
		r, err = modelOperation(ctx, e, words)
	}
	m.ends()
	return r, err
}

// ends: a command that has failed would have ended, and what it says to be at
// work on stands there for the next one to mend, as of a process that is gone.
func (m *model) ends() {
	const nobody = 1 << 30 // more than any process has
	dir, self := filepath.Join(m.b.state, "active"), strconv.Itoa(os.Getpid())
	for _, name := range names(dir) {
		if rest, ok := strings.CutPrefix(name, self+"."); ok {
			m.must(os.Rename(filepath.Join(dir, name), filepath.Join(dir, strconv.Itoa(nobody)+"."+rest)))
		}
	}
	m.b.Engine, _ = m.b.reopen()
}

// kill does an operation in a child that is killed at some step.
func (m *model) kill(op string) (r reconcile.Refreshed, err error) {
	began := time.Now()
	o := m.b.child(op, m.step.killed, "kill")
	m.p.took["in a child"] += time.Since(began)
	m.p.tally["in a child"]++
	m.b.Engine, _ = m.b.reopen()
	if o.killed {
		return r, errRehearsal
	}
	for line := range strings.Lines(o.out) {
		if told, ok := strings.CutPrefix(line, "told: "); ok && o.err == nil {
			return r, json.Unmarshal([]byte(told), &r)
		}
	}
	for _, kind := range modelKinds() {
		if strings.Contains(o.out, "kind: "+kind.Error()+"\n") {
			return r, fmt.Errorf("in a child: %w: %s", kind, o.out)
		}
	}
	return r, o.err
}

// modelKinds are the errors that a child tells apart.
func modelKinds() []error {
	return []error{errs.ErrConflict, errs.ErrDrifted, errs.ErrNotFound, fs.ErrNotExist}
}

// modelOperation does what words say: the operation, the sandbox, and what more
// it needs.
func modelOperation(ctx context.Context, e *engine.Engine, words []string) (r reconcile.Refreshed, err error) {
	words = append(words, "", "")
	name, arg := words[1], words[2]
	var mine, theirs []string
	switch arg {
	case "mine":
		mine = []string{"*"}
	case "theirs":
		theirs = []string{"*"}
	}
	switch words[0] {
	case opPromote:
		o := reconcile.PromoteOptions{Mine: mine, Theirs: theirs}
		if mine == nil && theirs == nil {
			o.Plan = arg
		}
		_, err = e.Reconcile.Promote(ctx, name, o)
	case opApply:
		_, err = e.Reconcile.Promote(ctx, name, strictly())
	case opRefresh:
		r, err = e.Reconcile.Refresh(ctx, name, reconcile.RefreshOptions{Mine: mine, Theirs: theirs})
	case opUndo:
		_, err = e.Reconcile.Undo(ctx, "")
	case opSnapshot:
		_, err = e.Snapshot(ctx, name, arg)
	case opRollback:
		err = e.Rollback(ctx, name, arg)
	case opRemove:
		err = e.Remove(ctx, name)
	default:
		err = fmt.Errorf("no operation %q", words)
	}
	return r, err
}

// modelOperations is the operation that a child is to do, if it is the model's.
func modelOperations(op string) map[string]operation {
	words := strings.Split(op, " ")
	if words[0] != "model" {
		return nil
	}
	return map[string]operation{op: {do: func(ctx context.Context, b *bench) error {
		r, err := modelOperation(ctx, b.Engine, words[1:])
		told, _ := json.Marshal(r)
		fmt.Fprintf(os.Stdout, "told: %s\n", told)
		for _, kind := range modelKinds() {
			if errors.Is(err, kind) {
				fmt.Fprintf(os.Stdout, "%v\nkind: %v\n", err, kind)
			}
		}
		return err
	}}}
}
