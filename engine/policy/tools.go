package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/dpkg"
)

func toolsSection() Section {
	return Section{
		Header: "[tools]",
		Text: "Which programs may be executed. A rule is the full path of a program, after symbolic links; a directory with /* for everything in and below it; " +
			"the name of a program in the usual directories, such as /usr/bin; or dpkg: with the name of a Debian package, as \"dpkg:git\", " +
			"for the programs that it installed on this host, when the sandbox starts. " +
			"In allow, a path with a digest, as \"/usr/bin/git@sha256:…\", is about this content alone: the sandbox starts only if the program has it, and the program is read-only inside. Links are those of the real machine at each start: a link that a command of the sandbox has made allows nothing. A refused program fails with EACCES, whatever starts it: a shell, a script, an interpreter. The first refusal of each is an event (snapfs.access.refused, with seccomp of Linux 5.19). " +
			"What a program does by itself is not a matter of these rules: a python that may run can do what a program that may not run does. " +
			"A start takes some 10 µs for each program of an allowed package, and some 15 µs for each of a denied one; of these, the kernel's calls alone take 7 and 12 µs. An execution inside takes some tens of microseconds more. " +
			"snapfs profile check says what a rule cannot hold.",
		Keys: []Key{
			{"allow", "list of programs", "", "The only programs that may be executed. A program or a script needs its interpreter in the list too, but not the dynamic linker. It requires Landlock (Linux 5.19)."},
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
	switch {
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

// wrongProgram checks a rule of [tools] about programs: a path, a directory with /*, a name, or a package. It returns
// the mistake in it and the correction, or "" if the rule is valid.
func wrongProgram(rule string) (what, mend string) {
	dir, tree := strings.CutSuffix(rule, "/*")
	pkg, isPackage := catalog.PackageOf(rule)
	switch {
	case strings.Contains(rule, "@sha256:") || strings.HasPrefix(rule, "sha256:"):
		return "has a digest, which a copy of the program with one more byte does not have", "write the path alone, or use allow"
	case strings.ContainsAny(rule, " \t\n"):
		return "has arguments", "rules are about programs, not about their arguments, which a process can change after they were read (docs/design/0016-arguments.md)"
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
