package engine_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A crossingTree is what a tree holds, by text and line as "text0:3", or by path: "file MODE CONTENT",
// "link TARGET", "dir MODE".
type crossingTree map[string]string

func textLine(text, actor int) string { return fmt.Sprintf("text%d:%d", text, actor) }

func contestedFile(i int) string { return fmt.Sprint("c", i) }

func ownPath(a, k int) string {
	return filepath.Join([]string{".", "d"}[k%2], fmt.Sprintf("a%d-%d", a, k))
}

func plainFile(value string) string { return "file 644 " + value + "\n" }

// text returns the content of a text: a line of each actor, with lines between them that nobody
// changes.
func (c *crossing) text(text int) string {
	var b strings.Builder
	for a := range actors {
		fmt.Fprintf(&b, "between %d\nactor %d: %s\n", a, a, c.real[textLine(text, a)])
	}
	return b.String() + "end\n"
}

// nodeAt returns the entry of a [crossingTree] for the file at path.
func nodeAt(path string, e fs.DirEntry) (string, error) {
	info, err := e.Info()
	if err != nil {
		return "", err
	}
	switch mode := info.Mode(); mode.Type() {
	case fs.ModeDir:
		return fmt.Sprintf("dir %o", mode.Perm()), nil
	case fs.ModeSymlink:
		target, err := os.Readlink(path)
		return "link " + target, err
	case 0:
		data, err := os.ReadFile(path)
		return fmt.Sprintf("file %o %s", mode.Perm(), data), err
	default:
		return mode.String(), nil
	}
}

// of returns the part of t that an actor owns.
func (t crossingTree) of(a int) crossingTree {
	own := crossingTree{}
	for key, value := range t {
		if strings.HasSuffix(key, fmt.Sprint(":", a)) || strings.HasPrefix(strings.TrimPrefix(key, "d/"), fmt.Sprintf("a%d-", a)) {
			own[key] = value
		}
	}
	return own
}

// set makes an entry; "" removes it.
func (t crossingTree) set(key, value string) {
	if t[key] = value; value == "" {
		delete(t, key)
	}
}

func (t crossingTree) kind(path string) string {
	kind, _, _ := strings.Cut(t[path], " ")
	return kind
}

// move renames what is at a path and below it, or removes it if to is "".
func (t crossingTree) move(from, to string) {
	moved := crossingTree{}
	for path, value := range t {
		if rest, below := strings.CutPrefix(path, from); below && (rest == "" || rest[0] == '/') {
			delete(t, path)
			moved[to+rest] = value
		}
	}
	if to != "" {
		for path, value := range moved {
			t[path] = value
		}
	}
}

// mode returns the mode of a file or directory.
func (t crossingTree) mode(path string) string { return strings.Fields(t[path])[1] }

// write gives a file new content. It has the mode that it had, or that of a new file.
func (t crossingTree) write(path, value string) {
	mode := "644"
	if t.kind(path) == "file" {
		mode = t.mode(path)
	}
	t[path] = "file " + mode + " " + value + "\n"
}

// person starts a shell in the workspace, which makes the edits of the person.
func (b *bench) person() *resident {
	cmd := exec.CommandContext(b.t.Context(), "/bin/sh")
	cmd.Dir, cmd.Stderr = b.workspace, os.Stderr
	out, stdout, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	stdin, in, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout = stdin, stdout
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	stdin.Close()
	stdout.Close()
	r := &resident{in: in, out: out, process: waiter{cmd}}
	b.t.Cleanup(r.end)
	return r
}

// A waiter waits for a shell whose input has ended.
type waiter struct{ cmd *exec.Cmd }

func (w waiter) Close() error { return w.cmd.Wait() }

// oneEdit changes what is expected, and returns the script that does the same.
func (c *crossing) oneEdit(a int) string {
	tree := c.real
	if a != 0 {
		tree = c.boxes[a].own
	}
	switch how := c.r.IntN(16); {
	case how < 5:
		n := c.r.IntN(texts)
		text := fmt.Sprint("text", n)
		if a == 0 {
			c.changed[text] = len(c.log)
		} else if box := c.boxes[a]; !box.touched[text] {
			box.touched[text] = true
			box.unseen = box.unseen || c.changed[text] >= box.since
		}
		tree[textLine(n, a)] = c.value()
		return editText(text, a, tree[textLine(n, a)], how)
	case how < 13:
		return c.editOwn(a, tree, ownPath(a, c.r.IntN(ownPaths)), how)
	}
	return c.editContested(a)
}

// editText changes an actor's line of a text, in the ways of editors, of a shell and of git checkout.
func editText(text string, a int, value string, how int) string {
	line := fmt.Sprintf("'s/^actor %d: .*/actor %d: %s/' ", a, a, value)
	switch how {
	case 0, 1: // a new file is renamed over the old one
		return "sed -i " + line + text
	case 2: // the same file is written
		return fmt.Sprintf("t=$(sed %s%s)\necho \"$t\" > %s", line, text, text)
	case 3: // the old file is renamed first
		return fmt.Sprintf("mv %s %s~\nsed %s%s~ > %s\nrm %s~", text, text, line, text, text, text)
	default: // the old file is removed first
		return fmt.Sprintf("t=$(sed %s%s)\nrm %s\necho \"$t\" > %s", line, text, text, text)
	}
}

// editOwn changes what its actor owns at a path, or moves it to another.
func (c *crossing) editOwn(a int, tree crossingTree, path string, how int) string {
	v, other := c.value(), ownPath(a, c.r.IntN(ownPaths))
	if tree.kind(path) == "dir" && how < 9 {
		path += []string{"/x", "/y"}[c.r.IntN(2)]
	}
	switch {
	case how < 7 && tree.kind(path) != "link": // in place
		tree.write(path, v)
		return fmt.Sprintf("echo %s > %s", v, path)
	case how < 8: // a new file is renamed over the old one
		tree[path] = plainFile(v)
		return fmt.Sprintf("echo %s > %s.new\nmv -T %s.new %s", v, path, path, path)
	case how == 8:
		tree.move(path, "")
		return "rm -rf " + path
	case how == 9:
		tree.move(path, "")
		tree[path] = "link " + v
		return fmt.Sprintf("rm -rf %s\nln -s %s %s", path, v, path)
	case how == 10:
		tree.move(path, "")
		tree[path], tree[path+"/x"] = "dir 755", plainFile(v)
		return fmt.Sprintf("rm -rf %s\nmkdir %s\necho %s > %s/x", path, path, v, path)
	case how == 11 && (tree.kind(path) == "dir" || tree.kind(path) == "file"):
		kind, rest, _ := strings.Cut(tree[path], " ")
		_, rest, content := strings.Cut(rest, " ")
		mode := []string{"700", "755", "750"}[c.r.IntN(3)]
		if tree[path] = kind + " " + mode; content {
			tree[path] += " " + rest
		}
		return fmt.Sprintf("chmod %s %s", mode, path)
	case how == 12 && tree.kind(path) != "" && path != other:
		tree.move(other, "")
		tree.move(path, other)
		if a != 0 {
			c.boxes[a].moved = true
		}
		return fmt.Sprintf("rm -rf %s\nmv -T %s %s", other, path, other)
	}
	tree.move(path, "")
	tree[path] = plainFile(v)
	return fmt.Sprintf("rm -rf %s\necho %s > %s", path, v, path)
}

// editContested writes or removes a file that all actors edit.
func (c *crossing) editContested(a int) string {
	path, how := contestedFile(c.r.IntN(contested)), c.r.IntN(4)
	v := plainFile(c.value())
	script := fmt.Sprintf("echo v%d > %s", c.next, path)
	switch {
	case how == 0 && *interleaveRemovals && c.removable(a, path):
		v, script = "", "rm "+path
	case how == 1:
		script = fmt.Sprintf("echo v%d > %s.%d\nmv -T %s.%d %s", c.next, path, a, path, a, path)
	}
	if a == 0 {
		c.real.set(path, v)
		return script
	}
	box := c.boxes[a]
	if v == "" && c.real[path] == "" && !c.place.frozen {
		// The file has gone on both sides. What comes there later is the file of the live base. What the sandbox makes
		// of that may conflict: snapfs may compare it with what the sandbox had before.
		delete(box.mine, path)
		delete(box.began, path)
		box.atFork[path], box.gone[path] = "", true
		return script
	}
	if _, changed := box.mine[path]; !changed {
		if _, promoted := box.began[path]; !promoted {
			box.began[path] = c.real[path]
			if c.place.frozen {
				box.began[path] = box.atFork[path]
			}
		}
	}
	box.mine[path] = v
	return script
}

// removable reports whether an actor has a contested file that it did not make itself. A warm sandbox on a live base
// may still see a file that has gone, and may not have seen one that came.
func (c *crossing) removable(a int, path string) bool {
	if a == 0 {
		return c.real[path] != ""
	}
	box, frozen := c.boxes[a], c.place.frozen
	began, promoted := box.began[path]
	if mine, changed := box.mine[path]; changed {
		return mine != "" && began != "" && (!c.warm || began == box.atFork[path])
	}
	if !promoted {
		began = c.real[path]
		if frozen {
			began = box.atFork[path]
		}
	}
	return began != "" && (frozen || !c.warm)
}
