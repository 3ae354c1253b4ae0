package catalog

import (
	"path"
	"slices"
	"strings"
)

// Tools says which programs the processes of a sandbox may execute, and which tools its AI agent may not use.
// An entry of Allow and Deny is one of these:
//
//   - the absolute path of a program, after symbolic links; in Allow also with @sha256: and the digest that its content
//     must have;
//   - a directory with /*, for everything in and below it;
//   - the name of a program in the usual directories of programs;
//   - dpkg: with the name of a Debian package, for the programs that it installed.
//
// In Allow, a path or a name may be followed by words, each after one space, as "git status": the program can then be
// executed only with these words as its first arguments.
type Tools struct {
	// Allow lists the only programs to execute; nil means all, and an empty list none.
	Allow []string `json:"allow,omitzero"`
	// Deny lists programs that cannot be executed, also if Allow has them.
	Deny []string `json:"deny,omitempty"`
	// Hook lists tools of agents that snapfs hook refuses, and MCP tools of snapfs mcp that it does
	// not offer. A name may end with *.
	Hook []string `json:"hook,omitempty"`
	MCP  []string `json:"mcp,omitempty"`
}

// Refused returns the first entry of list that applies to the agent's tool called tool, such as "Bash", or ""
// if none does. list holds the names of tools that the agent may not use.
func Refused(list []string, tool string) string {
	i := slices.IndexFunc(list, func(entry string) bool {
		begin, open := strings.CutSuffix(entry, "*")
		return entry == tool || open && strings.HasPrefix(tool, begin)
	})
	if i < 0 {
		return ""
	}
	return list[i]
}

// ProgramDirs are the usual directories of programs. A rule of [Tools] with the name of a program without a
// path applies to the program in each of them.
var ProgramDirs = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/games", "/snap/bin"}

// PackageOf returns the name of the Debian package if rule, an entry of [Tools.Allow] or [Tools.Deny], is about the
// programs of one, as "dpkg:git".
func PackageOf(rule string) (pkg string, ok bool) { return strings.CutPrefix(rule, "dpkg:") }

// CutDigest returns the path and the SHA-256 digest, in hexadecimal, of a rule of [Tools.Allow] about a program with a
// certain content, as "/usr/bin/git@sha256:…". ok is false for another rule, which it returns as path.
func CutDigest(rule string) (path, digest string, ok bool) { return strings.Cut(rule, "@sha256:") }

// HasDigests reports whether t allows a program only with a certain content, by its digest. t may be nil.
func (t *Tools) HasDigests() bool {
	return t != nil && slices.ContainsFunc(t.Allow, func(rule string) bool {
		_, _, ok := CutDigest(rule)
		return ok
	})
}

// CutArguments returns the program and the first arguments of a rule of [Tools.Allow], as "git status". ok is false for
// a rule without arguments, which it returns as program.
func CutArguments(rule string) (program string, first []string, ok bool) {
	program, words, ok := strings.Cut(rule, " ")
	if !ok {
		return rule, nil, false
	}
	return program, strings.Split(words, " "), true
}

// HasArguments reports whether t allows a program only with certain first arguments. t may be nil.
func (t *Tools) HasArguments() bool {
	return t != nil && slices.ContainsFunc(t.Allow, func(rule string) bool {
		_, _, ok := CutArguments(rule)
		return ok
	})
}

// Rule returns the rule of t, as the user wrote it, that forbids a sandbox to execute program, or "" if
// program may run. program is a name or an absolute path; Rule follows no links. installs reports whether a
// Debian package installed the program at an absolute path. t may be nil: everything may run.
func (t *Tools) Rule(program string, installs func(pkg, program string) bool) string {
	if t == nil {
		return ""
	}
	names := func(rule string) bool {
		rule, _, _ = CutDigest(rule)    // the content was compared when the sandbox started
		rule, _, _ = CutArguments(rule) // the broker of commands compares them
		return ToolMatches(rule, program, installs)
	}
	if i := slices.IndexFunc(t.Deny, names); i >= 0 {
		return "deny " + t.Deny[i]
	}
	if t.Allow != nil && !slices.ContainsFunc(t.Allow, names) {
		return "allow has no " + program
	}
	return ""
}

// ToolMatches reports whether rule, an entry of [Tools.Allow] or [Tools.Deny], applies to program, which is a
// name or an absolute path. installs is as for [Tools.Rule].
func ToolMatches(rule, program string, installs func(pkg, program string) bool) bool {
	dir, tree := strings.CutSuffix(rule, "/*")
	switch pkg, ok := PackageOf(rule); {
	case ok && path.IsAbs(program):
		return installs(pkg, program)
	case ok:
		return slices.ContainsFunc(ProgramDirs, func(dir string) bool { return installs(pkg, path.Join(dir, program)) })
	case rule == program:
		return true
	case !path.IsAbs(program):
		return path.IsAbs(rule) && !tree && path.Base(rule) == program && slices.Contains(ProgramDirs, path.Dir(rule)) ||
			tree && slices.Contains(ProgramDirs, dir)
	case tree:
		return dir == "" || strings.HasPrefix(program, dir+"/")
	case path.IsAbs(rule):
		return false
	}
	return path.Base(program) == rule && slices.Contains(ProgramDirs, path.Dir(program))
}
