package gitrepo

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A CommitData is the parsed content of a git commit: its tree, parents, author, committer and message.
// [ParseCommit] makes it.
type CommitData struct {
	Tree    ID
	Parents []ID
	// Author and Committer are "name <email> time zone".
	Author, Committer string
	Message           string
}

// Subject returns the first line of the commit message.
func (c *CommitData) Subject() string {
	subject, _, _ := strings.Cut(strings.TrimLeft(c.Message, "\n"), "\n")
	return subject
}

// AuthorName returns the author's name without address and time.
func (c *CommitData) AuthorName() string {
	name, _, _ := strings.Cut(c.Author, " <")
	return name
}

// When returns the time at which the commit was made, as its committer line says.
func (c *CommitData) When() time.Time {
	fields := strings.Fields(c.Committer[strings.LastIndexByte(c.Committer, '>')+1:])
	if len(fields) == 0 {
		return time.Time{}
	}
	n, _ := strconv.ParseInt(fields[0], 10, 64) // ParseCommit checked the digits
	return time.Unix(n, 0)
}

// validPerson reports whether a text of a commit, its author or committer, is "name <email> time zone" as git
// writes it.
func validPerson(s string) bool {
	name, rest, ok := strings.Cut(s, "<")
	email, when, closed := strings.Cut(rest, ">")
	if !ok || !closed || name != "" && !strings.HasSuffix(name, " ") || strings.ContainsAny(name, ">\n") || strings.ContainsAny(email, "<\n") {
		return false
	}
	seconds, zone, _ := strings.Cut(strings.TrimPrefix(when, " "), " ")
	return strings.HasPrefix(when, " ") && allDigits(seconds, 18) && (seconds == "0" || seconds[0] != '0') &&
		len(zone) == 5 && (zone[0] == '+' || zone[0] == '-') && allDigits(zone[1:], 4)
}

func allDigits(s string, most int) bool {
	return s != "" && len(s) <= most && strings.Trim(s, "0123456789") == ""
}

// ParseCommit parses the content of a commit object. strict refuses irregularities that old versions of git
// wrote; without it they are accepted. Errors: ErrDamaged.
func ParseCommit(data []byte, strict bool) (*CommitData, error) {
	c := new(CommitData)
	damaged := fmt.Errorf("commit: %w", ErrDamaged)
	head, message, ok := strings.Cut(string(data), "\n\n")
	if !ok && strict || strict && bytes.IndexByte(data, 0) >= 0 {
		return nil, damaged
	}
	c.Message = message
	lines := strings.Split(strings.TrimSuffix(head, "\n"), "\n")
	next := func(key string) (string, bool) {
		if len(lines) == 0 {
			return "", false
		}
		value, ok := strings.CutPrefix(lines[0], key+" ")
		if ok {
			lines = lines[1:]
		}
		return value, ok
	}
	text, _ := next("tree")
	if c.Tree, ok = ParseID(text); !ok {
		return nil, damaged
	}
	for text, more := next("parent"); more; text, more = next("parent") {
		id, ok := ParseID(text)
		if !ok {
			return nil, damaged
		}
		c.Parents = append(c.Parents, id)
	}
	author, hasAuthor := next("author")
	committer, hasCommitter := next("committer")
	c.Author, c.Committer = author, committer
	if !hasAuthor || !hasCommitter || strict && (!validPerson(author) || !validPerson(committer)) {
		return nil, damaged
	}
	return c, nil
}

// Text encodes the commit as the content of a commit object, the reverse of [ParseCommit].
func (c *CommitData) Text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "tree %s\n", c.Tree)
	for _, p := range c.Parents {
		fmt.Fprintf(&b, "parent %s\n", p)
	}
	fmt.Fprintf(&b, "author %s\ncommitter %s\n\n%s", c.Author, c.Committer, c.Message)
	return b.Bytes()
}

// A TreeEntry is one name in a git tree object, with the mode and the object that it names.
type TreeEntry struct {
	Mode uint32
	Name string
	ID   ID
}

// The modes that an entry of a git tree may have: a directory, a file, an executable file, a symbolic link or
// a submodule.
const (
	ModeDir     = 0o040000
	ModeFile    = 0o100644
	ModeExec    = 0o100755
	ModeSymlink = 0o120000
	ModeModule  = 0o160000 // a commit of a submodule
	modeGroup   = 0o100664 // written by early versions of git
)

// Kind returns the kind of object that the tree entry names: Tree, Blob, or 0 for the commit of a submodule,
// which lies in another repository.
func (e TreeEntry) Kind() Kind {
	switch e.Mode {
	case ModeDir:
		return Tree
	case ModeModule:
		return 0
	}
	return Blob
}

// sortKey returns the name by which git sorts the entry in its tree: that of a directory with a slash
// appended.
func (e TreeEntry) sortKey() string {
	if e.Mode == ModeDir {
		return e.Name + "/"
	}
	return e.Name
}

// ParseTree parses the content of a tree object. It accepts only sorted, distinct names that are safe to
// check out on any filesystem, with modes that git writes. Errors: ErrDamaged.
func ParseTree(data []byte) (list []TreeEntry, err error) {
	damaged := fmt.Errorf("tree: %w", ErrDamaged)
	files := map[string]bool{}
	for len(data) > 0 {
		head, rest, ok := bytes.Cut(data, []byte{0})
		mode, name, spaced := strings.Cut(string(head), " ")
		if !ok || !spaced || len(rest) < 20 {
			return nil, damaged
		}
		e := TreeEntry{Name: name, ID: ID(rest[:20])}
		data = rest[20:]
		switch mode {
		case "40000", "100644", "100755", "120000", "160000", "100664":
			n, _ := strconv.ParseUint(mode, 8, 32) // one of the above
			e.Mode = uint32(n)
		default:
			return nil, fmt.Errorf("mode %.10q: %w", mode, damaged)
		}
		if e.ID.Zero() || !safeName(e) {
			return nil, fmt.Errorf("entry %q: %w", name, damaged)
		}
		if n := len(list); n > 0 && list[n-1].sortKey() >= e.sortKey() || files[name] {
			return nil, fmt.Errorf("entry %q is not in order: %w", name, damaged)
		}
		files[name] = true
		list = append(list, e)
	}
	return list, nil
}

// TreeText encodes the entries as the content of a tree object. list must be sorted as [ParseTree] demands.
func TreeText(list []TreeEntry) []byte {
	var b bytes.Buffer
	for _, e := range list {
		fmt.Fprintf(&b, "%o %s\x00", e.Mode, e.Name)
		b.Write(e.ID[:])
	}
	return b.Bytes()
}

// safeName reports whether a tree entry may be checked out on any filesystem. It refuses names that could
// mean the parent directory, the directory .git or, for a symbolic link, a file that git reads, such as
// .gitmodules.
func safeName(e TreeEntry) bool {
	if e.Name == "" || e.Name == "." || e.Name == ".." || strings.ContainsRune(e.Name, '/') || meansFile(e.Name, ".git") {
		return false
	}
	if e.Mode == ModeSymlink {
		for _, name := range []string{".gitmodules", ".gitattributes", ".gitignore", ".mailmap"} {
			if meansFile(e.Name, name) {
				return false
			}
		}
	}
	return true
}

// meansFile reports whether HFS+ or NTFS could treat name as the file other, which is written in lower case.
// HFS+ ignores some code points. NTFS has short names, and ignores what follows a colon, and dots and spaces
// at the end. Both ignore case.
func meansFile(name, other string) bool {
	plain := strings.ToLower(strings.Map(func(r rune) rune {
		if r >= 0x200c && r <= 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x206a && r <= 0x206f || r == 0xfeff {
			return -1
		}
		return r
	}, name))
	plain, _, _ = strings.Cut(plain, ":")
	plain, _, _ = strings.Cut(plain, `\`)
	plain = strings.TrimRight(plain, ". ")
	short := strings.TrimPrefix(other, ".")
	short = short[:min(len(short), 6)] + "~"
	return plain == other || strings.HasPrefix(plain, short) && len(plain) == len(short)+1
}

// ParseTag parses the content of an annotated tag and returns the id and kind of the object that it names.
// Errors: ErrDamaged.
func ParseTag(data []byte) (ID, Kind, error) {
	damaged := fmt.Errorf("tag: %w", ErrDamaged)
	lines := strings.SplitN(string(data), "\n", 5)
	if len(lines) < 5 || bytes.IndexByte(data, 0) >= 0 {
		return ID{}, 0, damaged
	}
	object, ok1 := strings.CutPrefix(lines[0], "object ")
	kind, ok2 := strings.CutPrefix(lines[1], "type ")
	name, ok3 := strings.CutPrefix(lines[2], "tag ")
	tagger, ok4 := strings.CutPrefix(lines[3], "tagger ")
	id, ok := ParseID(object)
	if !ok || !ok1 || !ok2 || !ok3 || !ok4 || kindOf(kind) == 0 || !ValidRef("refs/tags/"+name) || !validPerson(tagger) {
		return ID{}, 0, damaged
	}
	return id, kindOf(kind), nil
}

// Check returns an error for an object that `git fsck --strict` would report. name is a blob's name in its
// tree, by which Check recognises a .gitmodules file. Errors: ErrDamaged.
func Check(o Object, name string) error {
	var err error
	switch o.Kind {
	case Commit:
		_, err = ParseCommit(o.Data, true)
	case Tree:
		_, err = ParseTree(o.Data)
	case Tag:
		_, _, err = ParseTag(o.Data)
	case Blob:
		if meansFile(name, ".gitmodules") {
			err = checkModules(o.Data)
		}
	}
	return err
}

// checkModules parses a .gitmodules file and refuses settings with which a submodule could leave the
// repository or run a command.
func checkModules(data []byte) error {
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(line, "=")
		key, value = strings.ToLower(strings.TrimSpace(key)), strings.Trim(strings.TrimSpace(value), `"`)
		_, name, section := strings.Cut(line, "[")
		up := false
		for part := range strings.FieldsFuncSeq(name, func(c rune) bool { return strings.ContainsRune(`/\" ]`, c) || c == '\n' }) {
			up = up || part == ".."
		}
		if section && up || key == "update" && strings.HasPrefix(value, "!") ||
			(key == "url" || key == "path") && (strings.HasPrefix(value, "-") || strings.Contains(strings.ToLower(value), "%0a")) {
			return fmt.Errorf(".gitmodules: %w", ErrDamaged)
		}
	}
	return nil
}
