package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/dpkg"
)

func toolsSection() Section {
	return Section{
		Header: "[tools]",
		Text: "Which programs may be executed. A rule is the full path of a program, after symbolic links; a directory with /* for everything in and below it; " +
			"the name of a program in the usual directories, such as /usr/bin; or dpkg: with the name of a Debian package, as \"dpkg:git\", " +
			"for the programs that it installed on this host, when the sandbox starts. " +
			"In allow, a path or a name may be followed by the first arguments with which the program may be executed, as \"git status\"; any others may follow. Such a program is not executed by the process that calls it: a small program of snapfs is in its place, which has the sandbox's supervisor compare the arguments and start the real one, as the same user, with the same limits and with an environment of its own, from which no other process can read it, change it or copy it. It gets HOME, PATH and the like as snapfs gave them to the sandbox's command, the variables of env, and from its caller only the language and the terminal; it has no controlling terminal and is not in its caller's process group, but gets the signals that its caller gets. A refused call ends with the status 126 and a message, and is an event. A rule without arguments about the same program is an error, and so is one about a program with further hard links. A rule about a script, as \"npm test\", is one about its interpreter with this script and these arguments. " +
			"In allow, a path with a digest, as \"/usr/bin/git@sha256:…\", is about this content alone: the sandbox starts only if the program has it, and the program is read-only inside. Links are those of the real machine at each start: a link that a command of the sandbox has made allows nothing. A refused program fails with EACCES, whatever starts it: a shell, a script, an interpreter. The first refusal of each is an event (snapfs.access.refused, with seccomp of Linux 5.19). " +
			"What a program does by itself, after its first arguments too, is not a matter of these rules: a python that may run can do what a program that may not run does. " +
			"A start takes some 10 µs for each program of an allowed package, and some 15 µs for each of a denied one; of these, the kernel's calls alone take 7 and 12 µs. An execution inside takes some tens of microseconds more. " +
			"snapfs profile check says what a rule cannot hold.",
		Keys: []Key{
			{"allow", "list of programs", "", "The only programs that may be executed: each with any arguments or, as \"git status\", only with these first arguments. A program or a script without arguments in its rule needs its interpreter in the list too, but not the dynamic linker. It requires Landlock (Linux 5.19)."},
			{"deny", "list of programs", "", "Programs that may not be executed, also if allow has them."},
			{"hook", "list of tools", "", "Tools of a coding agent, such as WebFetch or mcp__github__*, that snapfs hook refuses before they run. The agent must call the hook for them: snapfs agent install with --profile has it do so for every tool. The agent shows the reason, and each refusal is an event, also in the sandbox's evidence."},
			{"mcp", "list of tools", "", "MCP tools that snapfs does not offer, such as sandbox_race. A call of one fails with the reason and is an event."},
		},
	}
}

// tool stores one key of the section [tools] of a profile (the programs, and the tools of a coding agent, that may be
// used), called name and with the value v, in r.sandbox. It records mistakes in v at path, the key's path in the
// file.
func (r *reader) tool(name, path string, v any) {
	list, wrong := []string{}, wrongProgram
	switch name {
	case "hook", "mcp":
		wrong = wrongTool
	case "allow":
		wrong = wrongAllowed
	}
	r.texts(name, path, v, func(text, path string) {
		if what, mend := wrong(text); what != "" {
			r.wrong(path, fmt.Sprintf("%s: %q %s", name, text, what), mend)
			return
		}
		if !slices.Contains(list, text) {
			list = append(list, text)
			r.said("tools."+name, text, path)
		}
	})
	t := &r.sandbox.Tools
	*map[string]*[]string{"allow": &t.Allow, "deny": &t.Deny, "hook": &t.Hook, "mcp": &t.MCP}[name] = list
}

// wrongTool checks a name in the section [tools] that stands for a tool of a coding agent, such as Bash, and
// may end with *. It returns the mistake in it and the correction, or "" if the name is valid.
func wrongTool(name string) (what, mend string) {
	if strings.ContainsAny(strings.TrimSuffix(name, "*"), "* \t\n") {
		return "is no name of a tool", "write the name, or its beginning with * at the end"
	}
	return "", ""
}

// wrongAllowed checks a rule of tools.allow: one that wrongProgram checks, or a path with the digest of the program's
// content. It returns the mistake in it and the correction, or "" if the rule is valid.
func wrongAllowed(rule string) (what, mend string) {
	path, digest, ok := catalog.CutDigest(rule)
	program, first, arguments := catalog.CutArguments(rule)
	switch {
	case arguments:
		return wrongArguments(program, first)
	case strings.HasPrefix(rule, "sha256:"):
		return "has no path", `write the path of the program before it, as "/usr/bin/git@` + rule + `": to find a program by its content alone, each start would read them all`
	case !ok:
		return wrongProgram(rule)
	case len(digest) != 64 || strings.Trim(digest, "0123456789abcdef") != "":
		return "has no SHA-256 digest", "write its 64 hexadecimal digits in lower case, as sha256sum prints them"
	case !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/*"):
		return "has a digest and names no single program", "write the full path of the program before @sha256:"
	}
	return wrongProgram(path)
}

// wrongArguments checks a rule of tools.allow that allows a program only with certain first arguments. It returns the
// mistake in it and the correction, or "" if the rule is valid.
func wrongArguments(program string, first []string) (what, mend string) {
	_, isPackage := catalog.PackageOf(program)
	switch {
	case isPackage || strings.HasSuffix(program, "/*"):
		return "has arguments and names no single program", "write the path or the name of the program before its first arguments"
	case strings.Contains(program, "@sha256:"):
		return "has arguments and a digest", "write the path alone before the arguments: nobody in the sandbox can write to such a program"
	case slices.Contains(first, ""):
		return "has an empty argument", "write one space between two arguments, and none at the end"
	}
	for _, word := range first {
		switch {
		case strings.ContainsAny(word, "*?[]"):
			return "has a pattern in its arguments", "leave out what may vary: after the first arguments of a rule any others may follow"
		case strings.ContainsAny(word, "\"'`\\$") || strings.ContainsFunc(word, unicode.IsControl):
			return "has a character of a shell in its arguments", "write each argument as the program gets it; one with a space or a quote cannot be in a rule"
		}
	}
	return wrongProgram(program)
}

// wrongProgram checks a rule of [tools] about programs: a path, a directory with /*, a name, or a package. It returns
// the mistake in it and the correction, or "" if the rule is valid.
func wrongProgram(rule string) (what, mend string) {
	dir, tree := strings.CutSuffix(rule, "/*")
	pkg, isPackage := catalog.PackageOf(rule)
	switch {
	case strings.Contains(rule, "@sha256:") || strings.HasPrefix(rule, "sha256:"):
		return "has a digest, which a copy of the program with one more byte does not have", "write the path alone, or use allow"
	case strings.ContainsAny(rule, " \t\n"):
		return "has arguments", "list in allow what may be executed, as \"git status\": an argument that is denied can follow another one, as in git -C . push"
	case isPackage && !dpkg.IsName(pkg):
		return "names no package", `write the package's name, as "dpkg:git" or "dpkg:git:amd64"`
	case isPackage:
		return "", ""
	case strings.Contains(rule, ":"):
		return "is no program", "write a path, a directory with /*, a name, or dpkg: with a package"
	case strings.ContainsAny(dir, "*?["):
		return "is no pattern that can be held", "write a path, a directory with /*, or a name"
	case !strings.Contains(rule, "/"):
		return "", ""
	case !filepath.IsAbs(rule):
		return "is relative", "write the full path, or the name alone"
	case tree && dir == "":
		return "is everything", "name a directory"
	case filepath.Clean(dir) != dir:
		return "is not a clean path", "write " + filepath.Clean(rule)
	}
	return "", ""
}
