package evidence

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/events"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/supervise"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/evidence/audit"
	"github.com/snapfs/snapfs/workflow/evidence/bundle"
)

// A gate is the checks that an evidence log records for one state of a sandbox, and the root hash of that
// state's manifest, the list of changed files. Reproducing repeats these checks.
type gate struct {
	checks []audit.Record
	root   string
	// after is the number of the first record after which the sandbox may have another state, or -1.
	after int64
}

// gateOf returns the last gate in the records of an evidence log: the last checks of the sandbox's changes,
// with the manifest of the same state. No command, rollback or refresh lies between them.
func gateOf(records []audit.Record) (last gate) {
	now := gate{after: -1}
	for _, r := range records {
		switch r.Type {
		case events.CommandStarted, events.SandboxRolledBack, events.SandboxRefreshed:
			if len(now.checks) > 0 {
				last = now
				last.after = r.Seq
			}
			now = gate{after: -1}
		case audit.DiffRecorded:
			now.root, _ = r.Data["root"].(string)
		case events.CheckEnded:
			if r.Data["reason"] == events.BeforePromotion {
				now.checks = append(now.checks, r)
			}
		}
	}
	if len(now.checks) > 0 {
		return now
	}
	return last
}

// Reproduce runs the recorded checks of text, a verified evidence bundle, again, each in a new fork of the
// recorded sandbox: of its base with the recorded changes. It returns the verdict on the gate, as these
// checks are called. Its fault is no-base if the sandbox no longer has that state, and status if a check ends
// with another exit status than the recorded one. The checks print to out.
//
// The checks are commands from the bundle: the caller calls Reproduce only if it trusts the key that signed
// it.
func Reproduce(ctx context.Context, e *engine.Engine, text []byte, out io.Writer) (bundle.Verdict, error) {
	verdict := func(result, fault, why string) (bundle.Verdict, error) {
		return bundle.Verdict{Name: bundle.Gate, Result: result, Fault: fault, Why: why}, nil
	}
	b, err := bundle.Decode(text)
	if err != nil {
		return bundle.Verdict{}, err
	}
	records, err := decode(b.Records)
	if err != nil {
		return bundle.Verdict{}, err
	}
	g := gateOf(records)
	if len(g.checks) == 0 {
		return verdict("not run", "", "no check of the changes is recorded")
	}
	rec, why := recordedState(ctx, e, b, records, g)
	if why != "" {
		return verdict("not run", bundle.NoBase, why)
	}
	for _, c := range g.checks {
		status, err := again(ctx, e, rec, c, out)
		if err != nil {
			return bundle.Verdict{}, err
		}
		if want := c.Data["status"]; want != float64(status) {
			return verdict("no", bundle.OtherStatus, fmt.Sprintf("check of record %d: status %d now, %v recorded", c.Seq, status, want))
		}
	}
	return verdict("yes", "", fmt.Sprintf("gate reproduced: all %d checks ended as recorded, in forks of the recorded state", len(g.checks)))
}

// recordedState returns the sandbox of the bundle b if it is still in the state on which the checks of g, the
// last ones in the bundle's records, ran; else nil and the reason why not.
func recordedState(ctx context.Context, e *engine.Engine, b *bundle.Bundle, records []audit.Record, g gate) (*catalog.Record, string) {
	var rec *catalog.Record
	all, _ := e.Catalog().List() // a damaged record is not this one
	for _, r := range all {
		if r.ID == b.Sandbox {
			rec = r
		}
	}
	if rec == nil {
		return nil, "this host has no sandbox " + b.Sandbox + ", whose state was checked"
	}
	bases := map[string]string{}
	trees, _ := records[0].Data["trees"].([]any)
	for _, t := range trees {
		if tree, ok := t.(map[string]any); ok {
			path, _ := tree["path"].(string)
			bases[path], _ = tree["base"].(string)
		}
	}
	for _, t := range rec.Trees {
		if base, ok := bases[strings.ToValidUTF8(t.Path, "�")]; ok && base != string(t.Base) {
			return nil, "the sandbox was refreshed since the checks: its base is another one"
		}
	}
	own, err := recordsOf(Of(e.Catalog()).Log(rec.ID))
	switch now := gateOf(own); {
	case err != nil || len(own) < len(records):
		return nil, "the record on this host is not that of the bundle"
	case now.after >= 0 || len(now.checks) != len(g.checks) || now.checks[0].Seq != g.checks[0].Seq:
		return nil, fmt.Sprintf("record %d changed the sandbox since the checks", max(now.after, g.after))
	case g.root == "":
		return nil, "no manifest of the checked state is recorded"
	}
	for i, root := range bundle.Roots(records) {
		if root == g.root && i < len(b.Manifests) {
			if err := holds(ctx, e, rec, b.Manifests[i]); err != nil {
				return nil, "the sandbox differs from the manifest of the checks: " + err.Error()
			}
			return rec, ""
		}
	}
	return nil, "the manifest of the checked state is missing"
}

// holds returns an error unless each file of the workspace that manifest, the recorded list of changed files,
// names has its recorded content in the sandbox.
func holds(ctx context.Context, e *engine.Engine, rec *catalog.Record, manifest [][]byte) error {
	tree, ok := compare.WorkspaceTree(rec)
	if !ok {
		return errors.New("it has no workspace")
	}
	fork, err := e.Reconcile.OpenFork(ctx, tree, rec.Workspace)
	if err != nil {
		return err
	}
	defer fork.Close()
	for _, line := range manifest {
		var entry struct {
			Path   string `json:"path"`
			Base64 string `json:"path_base64"`
			SHA256 string `json:"sha256"`
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			return err
		}
		if raw, err := base64.StdEncoding.DecodeString(entry.Base64); err == nil && entry.Base64 != "" {
			entry.Path = string(raw)
		}
		rel, err := filepath.Rel(rec.Workspace, entry.Path)
		if err != nil || !filepath.IsLocal(rel) || entry.SHA256 == "" {
			continue
		}
		if digest, err := digestOf(fork.Dir, rel); err != nil || digest != entry.SHA256 {
			return fmt.Errorf("%s has another content", errs.Quoted(entry.Path))
		}
	}
	return nil
}

// leftover is the age at which snapfs removes the fork in which a recorded check was repeated, if the
// repetition itself was killed before it removed the fork.
const leftover = time.Hour

// again repeats a check that the evidence log records, in a new fork of a sandbox, writes its output to out,
// and returns its exit status.
func again(ctx context.Context, e *engine.Engine, rec *catalog.Record, c audit.Record, out io.Writer) (status int, err error) {
	var args []string
	list, _ := c.Data["check"].([]any)
	for _, a := range list {
		text, _ := a.(string)
		args = append(args, text)
	}
	if len(args) == 0 {
		return 0, errs.New("reproducing", rec.Name, errs.ErrInvalid, fmt.Sprintf("record %d has no command", c.Seq))
	}
	fork, err := e.Fork(ctx, rec.Name, "", "reproduce-"+catalog.NewID())
	if err != nil {
		return 0, err
	}
	defer func() {
		if rerr := e.Remove(context.WithoutCancel(ctx), fork.Name); !errors.Is(rerr, errs.ErrNotFound) {
			err = errors.Join(err, rerr)
		}
	}()
	if err := e.Sandboxes.MakeTemporary(ctx, fork.Name, leftover); err != nil {
		return 0, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer read.Close()
	stage, _ := c.Data["name"].(string)
	env := append(hostfs.Environ(os.Environ(), rec.Policy.Env), "SNAPFS_WHEN="+events.BeforePromotion, "SNAPFS_SANDBOX="+rec.Name, "SNAPFS_STAGE="+stage, "SNAPFS_TARGET="+rec.Workspace)
	p, err := e.Supervise.ExecWith(ctx, fork.Name, engine.Command{
		Args: args, Env: env, Dir: rec.Workspace, Stdout: write, Stderr: write,
	}, supervise.ExecOptions{})
	write.Close()
	if err != nil {
		return 0, err
	}
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		io.Copy(out, read) //nolint:errcheck // what the checks print is for people
	}()
	st, err := p.Wait(ctx)
	err = errors.Join(err, p.Close())
	read.SetReadDeadline(time.Now().Add(time.Second)) //nolint:errcheck // pipes support deadlines
	<-copied
	return st.ExitCode(), err
}
