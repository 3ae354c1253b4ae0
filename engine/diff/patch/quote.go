package patch

import (
	"fmt"
	"strings"
)

// quote quotes a file name for a patch as git does: in double quotes with C escapes if it contains a control
// character, a byte outside ASCII, a quotation mark or a backslash.
func quote(name string) string {
	plain := true
	for i := range len(name) {
		plain = plain && name[i] >= ' ' && name[i] < 0x7f && name[i] != '"' && name[i] != '\\'
	}
	if plain {
		return name
	}
	const codes, letters = "\a\b\t\n\v\f\r\"\\", `abtnvfr"\`
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(name) {
		c := name[i]
		if at := strings.IndexByte(codes, c); at >= 0 {
			b.WriteByte('\\')
			b.WriteByte(letters[at])
		} else if c < ' ' || c >= 0x7f {
			fmt.Fprintf(&b, "\\%03o", c)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// pathFits reports whether git accepts a path in a patch. It rejects names that some
// filesystem treats as .git (path.c, is_ntfs_dotgit), and paths longer than PATH_MAX.
func pathFits(path string) bool {
	if path == "." || len(path) >= 4096 {
		return false
	}
	for element := range strings.SplitSeq(path, "/") {
		if cut := strings.IndexAny(element, `:\`); cut >= 0 {
			element = element[:cut]
		}
		element = strings.ToLower(strings.TrimRight(element, " ."))
		if element == ".git" || element == "git~1" {
			return false
		}
	}
	return true
}
