// Package gitguard decides what the host's own programs read of git's files in a view of package hostview, so that a
// program that runs git there runs no command that a container has written into them. It needs no git and no kernel:
// texts come in, texts go out.
//
// Git executes what its configuration says. It finds that by the name of a file, in the repository itself, in its
// submodules and worktrees, and in every directory that looks like a bare repository. So a [Guard] goes by the name
// alone, wherever the file lies: whether a directory is a repository can change between two system calls of git.
package gitguard

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// maxSize is the size in bytes of the largest file of git's that a [Guard] checks; a larger one the host may
// not read. Git's index has a limit of its own, [maxIndex].
const maxSize = 1 << 20

// errRefused means that a file of git's names a path outside of the view, the container's directory on the
// host, or that nobody can know where it leads.
var errRefused = errors.New("it leads out of the view")

// errProgram means that a file makes git execute a program, or write a file, that only the file's writer
// knows.
var errProgram = errors.New("it names a program or an unknown option")

// A Guard decides what programs on the host read of git's files in one view, the directory of a container on
// the host.
type Guard struct {
	// Workspace is the real directory that the view shows a copy of, which is also its path in the container. What
	// its own files hold is the user's, and the view may show it.
	Workspace string
	// View is the path of the view.
	View string
}

// Checks reports whether the Guard checks regular files of this name, because git reads them. A symbolic link
// of such a name must not be followed: it leads to a text under another name.
func (g *Guard) Checks(name string) bool {
	switch name {
	case "config", "config.worktree", ".git", "commondir", "git-rebase-todo":
		return true
	case "opts", "strategy", "strategy_opts", "apply-opt", "BISECT_NAMES", "MERGE_RR":
		return true
	}
	return isIndex(name)
}

// Text returns the content that programs on the host read of a file that they found under name: text, without
// the parts that could make git run a command. The path of the file begins with a slash and is relative to
// the view; it is "" if it is not known, and may be out of date, since the container can move a file at any
// time. Errors: the host may not read the file.
func (g *Guard) Text(name, path string, text []byte) ([]byte, error) {
	if isIndex(name) && len(text) <= maxIndex {
		return text, checkIndex(text)
	}
	if len(text) > maxSize {
		return nil, errors.New("the file is too large")
	}
	switch name {
	case ".git":
		return g.pointer(path, text, "gitdir:")
	case "commondir":
		return g.pointer(path, text, "")
	case "git-rebase-todo":
		return todo(text), nil
	case "opts":
		return pick(text), nil
	case "strategy", "strategy_opts", "apply-opt", "BISECT_NAMES", "MERGE_RR":
		return text, g.checkState(name, path, text)
	}
	return g.config(path, text), nil
}

// real returns the content of the file at this path of the real workspace, which the user and not the
// container wrote, or nil if there is none that can be compared.
func (g *Guard) real(path string) []byte {
	if path == "" || g.Workspace == "" {
		return nil
	}
	st, err := os.Stat(g.Workspace + path)
	if err != nil || !st.Mode().IsRegular() || st.Size() > maxSize {
		return nil
	}
	text, err := os.ReadFile(g.Workspace + path)
	if err != nil {
		return nil
	}
	return text
}

// pointer returns the text of a file, such as .git, that names another directory of git's after a prefix. It
// makes that an absolute path in the view: git follows an absolute path from wherever it stands, and a
// relative one from a directory that the container may move. A path out of the workspace stays if the real
// file has the same text.
func (g *Guard) pointer(path string, text []byte, prefix string) ([]byte, error) {
	to, ok := strings.CutPrefix(string(text), prefix)
	to = strings.Trim(to, " \t\r\n")
	if !ok || path == "" || to == "" || strings.ContainsAny(to, "\n\r\x00") {
		return nil, errRefused
	}
	rest, inside := g.rest(path, to)
	switch {
	case inside:
		to = g.View + rest
	case !bytes.Equal(text, g.real(path)):
		return nil, errRefused
	case !filepath.IsAbs(to):
		to = filepath.Join(filepath.Dir(g.Workspace+path), to)
	}
	if prefix != "" {
		to = prefix + " " + to
	}
	return []byte(to + "\n"), nil
}

// rest returns the path, relative to the view (a container's directory on the host), of the target to, which
// the file of git's at path names; false if the target is outside of the view.
func (g *Guard) rest(path, to string) (string, bool) {
	if !filepath.IsAbs(to) {
		to = filepath.Join(g.View, filepath.Dir(path), to)
	}
	to = filepath.Clean(to)
	for _, dir := range []string{g.View, g.Workspace} {
		if rest, ok := strings.CutPrefix(to, strings.TrimSuffix(dir, "/")); ok && dir != "" && (rest == "" || rest[0] == '/') {
			return rest, true
		}
	}
	return "", false
}

// todoWords are the instructions in the file of an interrupted git rebase that run no command, so that
// programs on the host may read them.
const todoWords = " pick p reword r edit e squash s fixup f drop d label l reset t merge m noop break b update-ref u "

// todo returns the instructions of an interrupted git rebase with a comment sign before those that run a
// command.
func todo(text []byte) []byte {
	out := bytes.Clone(text)
	at := 0
	for line := range bytes.Lines(text) {
		body := strings.TrimRight(string(line), "\r\n")
		word, _, _ := strings.Cut(strings.TrimLeft(body, " \t"), " ")
		word, _, _ = strings.Cut(word, "\t")
		if body != "" && !strings.Contains(todoWords, " "+word+" ") {
			out[at] = '#'
		}
		at += len(line)
	}
	return out
}
