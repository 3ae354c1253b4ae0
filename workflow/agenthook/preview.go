package agenthook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/compare"
	"github.com/snapfs/snapfs/engine/diff"
	"github.com/snapfs/snapfs/engine/diff/report"
	"github.com/snapfs/snapfs/engine/egress"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/isolate"
	"github.com/snapfs/snapfs/workflow/view"
)

// previewAge is how long the text of a preview, the effects of a shell command that snapfs first ran in a
// throw-away clone, waits for the agent to call the tool again. An older text is removed.
const previewAge = 5 * time.Minute

// previewDir is the directory, in the state directory, of the texts of previews (the effects of an agent's
// shell commands in a throw-away clone) that the person has not seen yet.
const previewDir = "previews"

// askAgain follows the text of a preview, a command's effects in a throw-away clone, in the reply to the
// model of the coding agent, so that the model calls the tool again and the person sees the effects.
const askAgain = "\n\nThe command has not run on the real files, and nobody has refused it. To run it, call the tool again with the same command: " +
	"the user then sees these effects and decides."

// permissionRequest answers the event that a coding agent is about to ask the person whether it may run a command of
// the shell. It first runs the command in a throw-away clone (of the sandbox in which the session works, or else of the
// workspace). Codex shows the person the text of this hook before it asks, and the plugin of opencode shows it beside
// the question. Claude Code shows none with its question, so the reply has the model call the tool again; the hook
// before that call, preToolUse, has the effects shown with the question, and this hook then leaves the question to the
// person. It never allows a command.
func (h *Handler) permissionRequest(ctx context.Context, ev *event) ([]byte, error) {
	if !ev.runsShell() || os.Getenv("SNAPFS_SANDBOX") != "" {
		return nil, nil // another tool, or the agent itself runs in a sandbox
	}
	l, err := h.presentLease(ev)
	if err != nil {
		return nil, err
	}
	command, err := h.ownCommand(ev, l)
	if err != nil {
		return nil, err
	}
	if h.Agent != "claude" {
		text, err := h.preview(ctx, ev, l, command)
		if err != nil {
			return nil, fmt.Errorf("no preview of the command: %w", err)
		}
		return notice{text}.encode()
	}
	path := h.previewPath(ev, command)
	text, err := readPreview(path)
	if err != nil {
		return nil, err
	}
	if text != "" { // the person sees it now
		return nil, os.Remove(path)
	}
	text, err = h.preview(ctx, ev, l, command)
	if err == nil {
		err = writePreview(path, text)
	}
	if err != nil {
		return nil, fmt.Errorf("no preview of the command: %w", err)
	}
	return output{Request: &decision{"deny", text + askAgain}}.encode(ev)
}

// ownCommand returns the command of the agent's event as the agent's model wrote it. In a sandbox, l, the hook
// of PreToolUse may have changed it to run there.
func (h *Handler) ownCommand(ev *event, l *Lease) (string, error) {
	command, err := ev.command()
	if err != nil || l == nil {
		return command, err
	}
	return h.unwrap(command, ev, l)
}

// previewPath returns the path of the file with the text of a preview, the effects of command in a throw-away
// clone. The event's session and directory are a part of the file's name.
func (h *Handler) previewPath(ev *event, command string) string {
	sum := sha256.Sum256([]byte(ev.Session + "\x00" + ev.Dir + "\x00" + command))
	return filepath.Join(h.State, previewDir, hex.EncodeToString(sum[:]))
}

// readPreview returns the text of a preview, a command's effects in a throw-away clone, from the file at
// path, or "" if there is none or it is too old.
func readPreview(path string) (string, error) {
	st, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && expiredPreview(st) {
		return "", nil
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if errors.Is(err, os.ErrNotExist) { // another hook has removed it just now
		return "", nil
	}
	return string(text), errs.With("reading a preview", path, err)
}

// expiredPreview reports whether the text of a preview, a command's effects in a throw-away clone, is too old
// to be shown (previewAge); st describes its file.
func expiredPreview(st os.FileInfo) bool { return time.Since(st.ModTime()) > previewAge }

// writePreview stores the text of a preview, a command's effects in a throw-away clone, at path until the
// person sees it, and removes texts that are too old.
func writePreview(path, text string) error {
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return errs.With("storing a preview", dir, err)
	}
	if err := removeExpiredPreviews(dir); err != nil {
		return err
	}
	return catalog.ReplaceFile(path, []byte(text), false)
}

// removeExpiredPreviews removes the texts of previews (commands' effects in a throw-away clone) that are too
// old from the directory dir, which need not exist. The texts name files of the workspace, so they must not
// stay.
func removeExpiredPreviews(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return errs.With("removing old previews", dir, err)
	}
	var failures []error
	for _, entry := range entries {
		old := filepath.Join(dir, entry.Name())
		if st, err := os.Stat(old); err != nil || !expiredPreview(st) {
			continue
		}
		if err := os.Remove(old); err != nil && !errors.Is(err, os.ErrNotExist) { // another hook may be quicker
			failures = append(failures, errs.With("removing an old preview", old, err))
		}
	}
	return errors.Join(failures...)
}

// pendingPreview returns the text of the preview, the effects in a throw-away clone, of the command that the
// agent is about to run by its shell tool, for the question to the person, or "" if there is none.
func (h *Handler) pendingPreview(ev *event) (string, error) {
	if !ev.runsShell() {
		return "", nil
	}
	command, err := ev.command()
	if err != nil {
		return "", err
	}
	return readPreview(h.previewPath(ev, command))
}

// preview runs command in a throw-away clone and returns a text about its effects. l ties the sandbox in
// which the event's session works to the agent; nil for a session without a sandbox.
func (h *Handler) preview(ctx context.Context, ev *event, l *Lease, command string) (text string, err error) {
	e, err := h.Open(ctx)
	if err != nil {
		return "", err
	}
	begin := time.Now()
	s, err := h.startPreview(ctx, e, ev, l, command)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.Discard(context.WithoutCancel(ctx))) }()
	st, err := s.Wait(ctx)
	if err != nil {
		return "", err
	}
	took := time.Since(begin)
	from := ""
	if l != nil {
		from = "origin"
	}
	c, err := e.Compare.ChangesAt(ctx, s.Record, from, "", nil)
	if err != nil {
		return "", err
	}
	defer c.Close()
	what := s.Record.Workspace
	if l != nil {
		what = "the sandbox " + l.Sandbox
	}
	return previewText(what, s, st, took, c)
}

// presentLease returns the lease, which ties a sandbox to an agent, of the sandbox in which the event's session works,
// or nil. Unlike leaseOf it never makes a sandbox.
func (h *Handler) presentLease(ev *event) (*Lease, error) {
	if name := view.SandboxAt(h.State, ev.Dir); name != "" {
		return leaseAt(h.State, name)
	}
	if !h.All || ev.Session == "" {
		return nil, nil //nolint:nilnil // a session without a sandbox
	}
	return h.sessionLease(ev.Session)
}

// inFork is the shell command that runs the command of a preview, its last argument, in a throw-away fork of
// a session's sandbox. In the sandbox the path of the view, a host directory that shows the sandbox's files,
// leads to the workspace, and so it does in the fork.
const inFork = `mkdir -p "${1%/*}" && ln -sfn "$2" "$1" && cd "$3" && shift 3 && exec "$@"`

// startPreview starts command in a throw-away clone without a network: a fork of the sandbox to which the
// lease l ties the session, or a new sandbox of the workspace around the event's directory if l is nil. The
// command has no input, and its output goes nowhere.
func (h *Handler) startPreview(ctx context.Context, e *engine.Engine, ev *event, l *Lease, command string) (*engine.Session, error) {
	// What a command does in a network cannot be thrown away, and nobody has permitted it yet.
	bound := func(p *catalog.Policy) {
		p.Network, p.Secrets = "none", nil
		limits := &p.Limits
		limits.RemoveAfter, limits.KeepEnd, limits.TTL, limits.Idle = 0, false, 0, 0
		if limits.Time == 0 || limits.Time > h.PreviewTime {
			limits.Time = h.PreviewTime
		}
	}
	c := isolate.Command{Args: []string{shell(), "-c", command}, Dir: ev.Dir}
	if l == nil {
		req, err := h.Request(ctx, ev.Dir)
		if err != nil {
			return nil, err
		}
		bound(&req.Policy)
		c.Env = hostfs.Environ(os.Environ(), req.Policy.Env)
		return e.Run(ctx, req, c)
	}
	rec, err := e.Catalog().Get(l.Sandbox)
	if err != nil {
		return nil, err
	}
	c.Args = []string{"/bin/sh", "-c", inFork, "snapfs-preview", l.View, l.Workspace, ev.Dir, shell(), "-c", command}
	c.Env, c.Dir = hostfs.Environ(os.Environ(), rec.Policy.Env), "/"
	return e.RunFork(ctx, l.Sandbox, bound, c)
}

// unwrap returns the agent's own command from one that the hook of PreToolUse has changed to run in the
// sandbox of l. A command that it has not changed is returned as it is.
func (h *Handler) unwrap(command string, ev *event, l *Lease) (string, error) {
	word, wrapped := strings.CutPrefix(command, h.wrapper(ev, l))
	if !wrapped {
		return command, nil
	}
	inside := word
	if len(word) > 1 && word[0] == '\'' {
		inside = strings.ReplaceAll(strings.TrimSuffix(word[1:], "'"), `'\''`, "'")
	}
	if errs.ShellQuoted(inside) != word {
		return "", errors.New("the agent has changed the command line that snapfs gave it")
	}
	return inside, nil
}

// Bounds of the text of a preview, a command's effects in a throw-away clone: the number of changed paths in
// the workspace, of those outside of it, and of network accesses. It counts further paths only.
const (
	previewInside  = 20
	previewOutside = 8
	previewRefused = 5
)

// previewText returns the text for the person about the effects c of a command that ran in a throw-away clone
// of what, such as "the sandbox t1". s is the session in the clone, st the command's exit status and took its
// duration.
func previewText(what string, s *engine.Session, st isolate.Status, took time.Duration, c *compare.Changes) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "snapfs ran this command in a throw-away copy of %s, network %s: ", pathlist.Printable(what), s.Record.Policy.Network)
	if s.Hit != nil {
		fmt.Fprintf(&b, "the limit %s %s ended it", s.Hit.Limit, s.Hit.Value)
	} else {
		fmt.Fprintf(&b, "status %d after %v", st.ExitCode(), took.Round(time.Millisecond))
	}
	var inside, outside []report.Row
	n := 0
	for _, p := range c.Parts {
		rows := report.Rows(slices.DeleteFunc(slices.Clone(p.Changes), diff.Change.TimeOnly), nil)
		n += len(rows)
		if p.Workspace {
			inside = append(inside, rows...)
			continue
		}
		for i := range rows {
			rows[i].Path = filepath.Join(p.Root, rows[i].Path)
		}
		outside = append(outside, rows...)
	}
	switch n {
	case 0:
		b.WriteString(". It changed nothing.\n")
	case 1:
		b.WriteString(". It changed one path:\n")
	default:
		fmt.Fprintf(&b, ". It changed %d paths:\n", n)
	}
	if err := rowsText(&b, inside, previewInside); err != nil {
		return "", err
	}
	if len(outside) > 0 {
		b.WriteString("outside of the workspace:\n")
		if err := rowsText(&b, outside, previewOutside); err != nil {
			return "", err
		}
	}
	refusedText(&b, s)
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// rowsText appends a table of at most most changed paths to the text of a preview, a command's effects in a
// throw-away clone, and the number of further paths.
func rowsText(b *strings.Builder, rows []report.Row, most int) error {
	rows = report.Fold(rows, most)
	shown := rows[:min(len(rows), most)]
	if err := report.Table(b, shown); err != nil {
		return err
	}
	if left := len(rows) - len(shown); left > 0 {
		fmt.Fprintf(b, "and %d more\n", left)
	}
	return nil
}

// refusedText appends to the text of a preview, a command's effects in the throw-away clone of s, the network
// accesses of the command that were refused.
func refusedText(b *strings.Builder, s *engine.Session) {
	refused := slices.DeleteFunc(slices.Clone(s.Refused), func(r egress.RefusedAccess) bool { return r.Failed })
	if len(refused) == 0 && s.Unreached {
		b.WriteString("It tried to reach a network, and the copy has none.\n")
	}
	for _, r := range refused[:min(len(refused), previewRefused)] {
		to := r.Name
		if to == "" && r.Addr.IsValid() {
			to = r.Addr.String()
		}
		if r.Port != 0 {
			to += " port " + strconv.Itoa(int(r.Port))
		}
		fmt.Fprintf(b, "refused: %s: %s\n", pathlist.Printable(to), r.Why)
	}
	if left := len(refused) - previewRefused; left > 0 {
		fmt.Fprintf(b, "and %d more refused\n", left)
	}
}
