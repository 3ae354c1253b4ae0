package page

import "strings"

// command writes to the review page the command line by which the user sees content that the page leaves out:
// the command that made the comparison, with further arguments.
func (b *builder) command(s *sheet, args ...string) {
	s.mark("<code class=cmd>")
	line := ""
	for i, a := range append(b.page.Command[:len(b.page.Command):len(b.page.Command)], args...) {
		if i > 0 {
			line += " "
		}
		line += shellWord(a)
	}
	if len(line) > 4*nameMax { // no terminal would accept it
		line = line[:4*nameMax] + "…"
	}
	s.text(line)
	s.mark("</code>")
}

// shellWord quotes an argument for a shell, because a file name in a command that a user pastes must not run
// anything. Bytes that are not printable ASCII are escaped as $'…', which bash, zsh, ksh and busybox support,
// and POSIX since 2024.
func shellWord(a string) string {
	bare, printed := a != "", true
	for i := range len(a) {
		c := a[i]
		bare = bare && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_./@:+,=", c) >= 0)
		printed = printed && c >= ' ' && c < 0x7f
	}
	switch {
	case bare:
		return a
	case printed:
		return "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	var w strings.Builder
	w.WriteString("$'")
	for i := range len(a) {
		switch c := a[i]; {
		case c == '\'' || c == '\\':
			w.WriteByte('\\')
			w.WriteByte(c)
		case c < ' ' || c >= 0x7f:
			// An octal escape ends after three digits; hexadecimal would include the next
			// characters.
			w.Write([]byte{'\\', '0' + c>>6, '0' + c>>3&7, '0' + c&7})
		default:
			w.WriteByte(c)
		}
	}
	w.WriteByte('\'')
	return w.String()
}
