package gitguard

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// plainKeys are the keys of git's configuration that programs on the host may read of a file that a container
// wrote: none names a program, a file with more configuration, or a directory to work in. The part before the
// slash is the section, with ".*" for one with a subsection. A list of harmless keys holds also against keys
// that a later git adds.
var plainKeys = sync.OnceValue(func() map[string]bool {
	return tableOf(`
core/repositoryformatversion filemode bare logallrefupdates ignorecase precomposeunicode protecthfs protectntfs
core/symlinks autocrlf eol safecrlf abbrev quotepath trustctime checkstat sparsecheckout sparsecheckoutcone whitespace
core/compression loosecompression bigfilethreshold commitgraph multipackindex untrackedcache preloadindex splitindex
core/sharedrepository
extensions/objectformat compatobjectformat refstorage worktreeconfig preciousobjects relativeworktrees noop
remote.*/url pushurl fetch push tagopt prune prunetags skipfetchall skipdefaultupdate mirror followremotehead
branch.*/remote pushremote merge rebase description
branch/autosetupmerge autosetuprebase sort
submodule.*/url active branch ignore shallow fetchrecursesubmodules
submodule/recurse fetchjobs active propagatebranches
user/name email useconfigonly
author/name email
committer/name email
pull/rebase ff
push/default autosetupremote followtags
remote/pushdefault
fetch/prune prunetags
merge/ff conflictstyle renames renamelimit log stat
rebase/autosquash autostash stat updaterefs
commit/verbose status cleanup
diff/renames renamelimit algorithm context mnemonicprefix noprefix colormoved wordregex indentheuristic
diff.*/binary xfuncname wordregex
status/showuntrackedfiles short branch relativepaths showstash
log/date decorate follow
tag/sort
gc/auto autodetach autopacklimit reflogexpire reflogexpireunreachable pruneexpire worktreepruneexpire packrefs
pack/window depth threads compression
index/version threads
feature/manyfiles experimental
rerere/enabled autoupdate
apply/whitespace
init/defaultbranch
lfs/repositoryformatversion
`)
})

func tableOf(text string) map[string]bool {
	table := map[string]bool{}
	for line := range strings.Lines(text) {
		section, keys, _ := strings.Cut(line, "/")
		for _, key := range strings.Fields(keys) {
			table[section+"/"+key] = true
		}
	}
	return table
}

// An entry is a key of git's configuration with its value, as a line of a file sets it. A [Guard] decides for
// each whether it is harmless.
type entry struct {
	section    string // in lower case, with ".*" if there is a subsection
	subsection string
	key, value string // the key in lower case
}

// The lines that a host may read are written so that there is one way to read them: a section alone on its line, a
// subsection without escapes, and a value that ends with its line.

// section parses a line of git's configuration that begins a section, such as `[remote "origin"]`; false for
// any other line.
func section(line string) (*entry, bool) {
	name, ok := strings.CutPrefix(strings.Trim(line, blank), "[")
	if !ok {
		return nil, false
	}
	if name, ok = strings.CutSuffix(name, "]"); !ok {
		return nil, false
	}
	name, rest, quoted := strings.Cut(name, `"`)
	e := &entry{section: strings.ToLower(name)}
	if quoted {
		sub, end := strings.CutSuffix(rest, `"`)
		name = strings.TrimRight(name, blank)
		if !end || len(e.section) == len(name) || strings.ContainsAny(sub, `"\`) {
			return nil, false
		}
		e.section, e.subsection = strings.ToLower(name)+".*", sub
	}
	return e, name != "" && !strings.ContainsFunc(name, notInKey)
}

// set parses a line of git's configuration that sets a key, such as `url = x`, or `bare`, in the section that
// e names.
func (e *entry) set(line string) (*entry, bool) {
	name, value, _ := strings.Cut(line, "=")
	name = strings.Trim(name, blank)
	if name == "" || !letter(rune(name[0])) || strings.ContainsFunc(name, notInKey) {
		return nil, false
	}
	return &entry{e.section, e.subsection, strings.ToLower(name), strings.Trim(value, blank)}, true
}

// blank has the characters, space and tab, that separate words in git's configuration.
const blank = " \t"

func letter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }

// notInKey reports whether a rune cannot be in the name of a section or key of git's configuration, so that a
// line ends the name there or is invalid.
func notInKey(r rune) bool { return !letter(r) && (r < '0' || r > '9') && r != '-' }

// comment reports whether a line of git's configuration is empty or a comment, so that it sets nothing.
func comment(line string) bool {
	line = strings.TrimLeft(line, blank)
	return line == "" || line[0] == '#' || line[0] == ';'
}

// config returns text, a file of git's configuration, with a comment sign in place of the first byte of each
// line that could make git run a command. The length stays, since git asks for it first. A file without any
// section sets nothing, and stays as it is; so does one that the user has written in a directory that is no
// repository.
func (g *Guard) config(path string, text []byte) []byte {
	if !hasSection(text) {
		return text
	}
	real := g.real(path)
	if bytes.Equal(real, text) && !exists(filepath.Join(filepath.Dir(g.Workspace+path), "HEAD")) {
		return text
	}
	own := map[entry]bool{}
	if real != nil {
		scan(real, func(_ int, e *entry) {
			if e != nil {
				own[*e] = true
			}
		})
	}
	out := bytes.Clone(text)
	scan(text, func(at int, e *entry) {
		if e == nil || !harmless(e) && !(own[*e] && g.staysOutside(e)) {
			out[at] = '#'
		}
	})
	return out
}

// hasSection reports whether any line of a file can begin a section of git's configuration. Before the first
// one git reads keys without a section, which mean nothing.
func hasSection(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimLeftFunc(line, func(r rune) bool { return r <= ' ' || r >= 0x7f })
		if len(line) > 0 && line[0] == '[' {
			return true
		}
	}
	return false
}

// scan calls do for each line of git's configuration with a key, and with nil for each line that it cannot
// parse or whose section it cannot parse. at is the offset of the line in text.
func scan(text []byte, do func(at int, e *entry)) {
	var in *entry // the section
	at, continued := 0, false
	for line := range bytes.Lines(text) {
		body := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
		begin := at
		at += len(line)
		joined := continued
		continued = strings.HasSuffix(body, `\`)
		switch {
		case body == "" && line[0] == '\n':
		case joined || !printable(body):
			do(begin, nil)
		case comment(body):
			continued = false
		case continued:
			do(begin, nil)
		default:
			if next, ok := section(body); ok {
				in = next
				continue
			}
			if strings.HasPrefix(strings.TrimLeft(body, blank), "[") {
				in = nil // another section, which nobody here can read
			}
			var e *entry
			if in != nil {
				e, _ = in.set(body)
			}
			do(begin, e)
		}
	}
}

// printable reports whether a line of git's configuration has no control characters but tabs. A line with
// others is not parsed, and the host does not read it.
func printable(line string) bool {
	return !strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// harmless reports whether programs on the host may read the entry of git's configuration even if a container
// wrote it. A remote such as "ext::COMMAND" names a program, also with quotes or a backslash between, which
// git removes. The index of a repository with another hash than SHA-1 cannot be checked.
func harmless(e *entry) bool {
	if e.section == "extensions" && e.key == "objectformat" && !strings.EqualFold(e.value, "sha1") {
		return false
	}
	return plainKeys()[e.section+"/"+e.key] && !strings.Contains(unquote(e.value), "::") && !optionLike(e)
}

// optionLike reports whether an entry of git's configuration has a name that a program would take for an
// option: "git fetch --all" runs "git fetch NAME" for each remote.
func optionLike(e *entry) bool {
	names := e.key != "tagopt" && (strings.HasPrefix(e.section, "remote") || e.section == "branch.*" || e.section == "submodule.*")
	return strings.HasPrefix(e.subsection, "-") || names && strings.HasPrefix(unquote(e.value), "-")
}

// staysOutside reports whether an entry of git's configuration that the user wrote means the same in the
// view, the container's copy of the workspace on the host: it names no file of the workspace, which the
// container may have changed, and no directory to work in.
func (g *Guard) staysOutside(e *entry) bool {
	if e.section == "core" && e.key == "worktree" || e.section == "extensions" {
		return false
	}
	if strings.HasPrefix(e.section, "include") && !strings.HasPrefix(e.value, "/") && !strings.HasPrefix(e.value, "~/") {
		return false
	}
	for _, word := range strings.FieldsFunc(e.value, notInPath) {
		if strings.HasPrefix(word, "/") || strings.HasPrefix(word, "~/") {
			continue
		}
		if strings.Contains(word, "/") || exists(filepath.Join(g.Workspace, word)) {
			return false
		}
	}
	return true
}

// notInPath reports whether a rune separates the words of a shell command, so that it cannot be in the path
// of a program in one. By it [Guard] finds the paths in a command of git's configuration.
func notInPath(r rune) bool { return strings.ContainsRune(" \t\"'`$(){}<>|&;=,\\", r) }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
