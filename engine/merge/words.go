package merge

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/snapfs/snapfs/engine/diff"
)

// sideDid returns a clause such as "the sandbox deleted it", from a side and its action, for a conflict's
// reason.
func sideDid(side int, did string) string {
	if side == mine {
		return "the sandbox " + did
	}
	return "the real tree " + did
}

// quote returns a path for a message about a conflict. It quotes a path with unprintable characters.
func quote(path string) string {
	if q := strconv.Quote(path); q[1:len(q)-1] != path {
		return q
	}
	return path
}

// abbreviate returns a list of paths for a message about a conflict: the first one, and how many more there
// are.
func abbreviate(paths []string) string {
	if len(paths) == 1 {
		return quote(paths[0])
	}
	return fmt.Sprintf("%s and %d more", quote(paths[0]), len(paths)-1)
}

// aspectWords returns the properties of a file that a side of the merge changed in words, such as "its
// content and owner".
func aspectWords(what diff.Aspect) string {
	var words []string
	for _, a := range []struct {
		aspect diff.Aspect
		word   string
	}{
		{diff.Type, "type"},
		{diff.Content, "content"},
		{diff.Mode, kindName(Mode)},
		{diff.Owner, kindName(Owner)},
		{diff.Target, kindName(Target)},
		{diff.Device, kindName(Device)},
		{diff.Xattrs, kindName(Xattrs)},
	} {
		if what&a.aspect != 0 {
			words = append(words, a.word)
		}
	}
	if len(words) == 0 {
		return "it"
	}
	return "its " + strings.Join(words, " and ")
}

// kindName returns a word for the attribute of a file that a conflict of metadata is about, such as
// "permissions".
func kindName(k Kind) string {
	switch k {
	case Mode:
		return "permissions"
	case Xattrs:
		return "extended attributes"
	case Device:
		return "device number"
	}
	return string(k)
}

// lines returns in words, for a message, which lines of the base are in conflict, such as "lines 3 to 5, and
// 1 more".
func (all regions) lines() string {
	where, n := "", 0
	for _, r := range all {
		if r.from != neither {
			continue
		}
		if n++; n > 1 {
			continue
		}
		switch r.base.end - r.base.start {
		case 0:
			where = fmt.Sprintf("after line %d", r.base.start)
		case 1:
			where = fmt.Sprintf("line %d", r.base.end)
		default:
			where = fmt.Sprintf("lines %d to %d", r.base.start+1, r.base.end)
		}
	}
	if n > 1 {
		where += fmt.Sprintf(", and %d more", n-1)
	}
	return where
}
