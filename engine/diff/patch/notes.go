package patch

import (
	"bufio"
	"fmt"
	"io/fs"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
)

// writeNotes writes the beginning of the patch: comments about the differences that git's format cannot
// express.
func writeNotes(out *bufio.Writer, changes []diff.Change) {
	first := true
	for i, c := range changes {
		bare := i+1 == len(changes) || !strings.HasPrefix(changes[i+1].Path, c.Path+"/")
		note := noteOf(c, bare)
		if note == "" {
			continue
		}
		if first {
			out.WriteString("# Not in this patch, because git cannot represent it:\n")
			first = false
		}
		fmt.Fprintf(out, "#   %s: %s\n", quote(c.Path), note)
	}
	if !first {
		out.WriteByte('\n')
	}
}

// noteOf describes in words, for the head of a patch, those differences of the change c that a git patch
// cannot express; "" for none. bare is set if nothing below the path changed.
func noteOf(c diff.Change, bare bool) string {
	if !pathFits(c.Path) {
		return joined(c.Kind.String(), strings.Join(c.What.Names(), ", "))
	}
	switch {
	case c.Kind == diff.Modified && c.What&diff.Type == 0:
		return noteOfModified(c)
	case c.Kind == diff.Deleted:
		return noteOfLone("deleted", c.Old, bare)
	case c.Kind == diff.Added:
		return noteOfLone("added", c.New, bare)
	}
	return joined(noteOfLone("deleted", c.Old, false), noteOfLone("added", c.New, bare))
}

func noteOfModified(c diff.Change) string {
	var parts []string
	add := func(when bool, format string, args ...any) {
		if when {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	held := fits(c.Old) && fits(c.New)
	add(c.What&diff.Content != 0 && !held, "too large: %d to %d bytes", c.Old.Size, c.New.Size)
	add(c.What&diff.Mode != 0 && !(held && modeFits(c.Old) && modeFits(c.New)), "mode %s to %s", diff.Octal(c.Old.Mode), diff.Octal(c.New.Mode))
	add(c.What&diff.Owner != 0, "owner %d:%d to %d:%d", c.Old.UID, c.Old.GID, c.New.UID, c.New.GID)
	add(c.What&diff.Device != 0, "device %#x to %#x", c.Old.Rdev, c.New.Rdev)
	add(c.What&diff.Xattrs != 0, "extended attributes")
	add(c.What&diff.Links != 0, "hard links")
	add(c.What == diff.Time, "time")
	return joined(parts...)
}

// noteOfLone describes in words those attributes of an added or deleted file that a git patch cannot express.
// did is "added" or "deleted". bare is set if nothing below the path changed.
func noteOfLone(did string, n *diff.Node, bare bool) string {
	if n.Mode.IsDir() {
		if bare && did == "added" {
			return "added empty directory"
		}
		if bare {
			return "deleted empty directory"
		}
		return ""
	}
	if !fits(n) {
		if n.Mode.IsRegular() {
			return fmt.Sprintf("%s, too large: %d bytes", did, n.Size)
		}
		return did + " " + diff.TypeName(n.Mode)
	}
	if did == "deleted" {
		return ""
	}
	var parts []string
	if !modeFits(n) {
		parts = append(parts, "mode "+diff.Octal(n.Mode))
	}
	if n.LinkOf != "" {
		parts = append(parts, "hard link of "+quote(n.LinkOf))
	}
	if len(n.Xattrs) > 0 {
		parts = append(parts, "extended attributes")
	}
	return joined(parts...)
}

// modeFits reports whether git can express the whole mode of a file, that is, whether it is 0644, 0755 or a
// symbolic link.
func modeFits(n *diff.Node) bool {
	return n.Mode.Type() == fs.ModeSymlink || n.Mode == 0o644 || n.Mode == 0o755
}

func joined(parts ...string) string {
	var said []string
	for _, p := range parts {
		if p != "" {
			said = append(said, p)
		}
	}
	return strings.Join(said, ", ")
}
