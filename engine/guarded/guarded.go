// Package guarded has the rules of a profile that allow a program only with certain first arguments: which programs of
// this host they are about, whether they can be held, and whether a call of a program is allowed. Such a program is
// guarded: no process of the sandbox can execute it by itself (isolate.Spec.Guarded).
package guarded

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/vfs"
	"golang.org/x/sys/unix"
)

// A Rule allows the processes of a sandbox to execute one program with certain first arguments.
type Rule struct {
	// Rule is the entry of [catalog.Tools.Allow].
	Rule string
	// Program is the path of the program in the sandbox, after the symbolic links of the host.
	Program string
	// Name is how the rule names the program: a path or a name. The program gets it as its argument 0.
	Name string
	// First are its first arguments; any others may follow.
	First []string
	// Also are the paths of programs that must be executable for the call: a script that the rule names, and env(1).
	// Program is then the script's interpreter.
	Also []string
}

// Rules returns the rules of tools, which may be nil, that allow programs with certain first arguments, for the programs
// that this host has. resolve returns paths after the symbolic links of the host, and dirs the usual directories of
// programs. A rule about a script becomes rules about its interpreter, which gets the script and the arguments. notes are
// sentences for the user about rules for which the host has no program. Errors: [errs.ErrNotSupported] for a program
// whose arguments cannot be held.
func Rules(tools *catalog.Tools, resolve func(paths []string) []string, dirs func() []string) (rules []Rule, notes []string, err error) {
	if !tools.HasArguments() {
		return nil, nil, nil
	}
	for _, rule := range tools.Allow {
		name, first, ok := catalog.CutArguments(rule)
		if !ok {
			continue
		}
		paths := []string{name}
		if !strings.Contains(name, "/") {
			paths = nil
			for _, dir := range dirs() {
				paths = append(paths, filepath.Join(dir, name))
			}
		}
		before := len(rules)
		for i, path := range resolve(paths) {
			one := Rule{Rule: rule, Program: path, Name: name, First: first}
			if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
				continue
			}
			line, script, err := one.shebang()
			if err != nil {
				return nil, nil, err
			}
			if script {
				more, err := one.interpreted(paths[i], line, resolve, dirs)
				if err != nil {
					return nil, nil, err
				}
				rules = append(rules, more...)
				continue
			}
			if !slices.ContainsFunc(rules[before:], func(r Rule) bool { return r.Program == path }) {
				rules = append(rules, one)
			}
		}
		if len(rules) == before {
			notes = append(notes, "tools allow "+rule+": this host has no such program, so the rule applies to none")
		}
	}
	return rules, notes, nil
}

// refused returns the error of a rule that cannot be held because of why.
func (r Rule) refused(kind error, hint, why string, args ...any) error {
	e := &errs.Error{Op: "allowing programs", Path: r.Program, Kind: kind, Err: errors.New("tools.allow \"" + r.Rule + "\": " + fmt.Sprintf(why, args...))}
	if hint != "" {
		e.Hints = []string{hint}
	}
	return e
}

// shebang returns the first line of the program, without "#!", if it is a script. Errors: [errs.ErrNotSupported] for a
// dynamic linker.
func (r Rule) shebang() (line string, script bool, err error) {
	if base := filepath.Base(r.Program); strings.HasPrefix(base, "ld-") && strings.Contains(base, ".so") {
		return "", false, r.refused(errs.ErrNotSupported, "", "a dynamic linker can always be executed, with any arguments")
	}
	f, err := os.Open(r.Program)
	if err != nil {
		return "", false, nil // it may be executed and not read
	}
	defer f.Close()
	head := make([]byte, 256)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return "", false, errs.With("reading a program", r.Program, err)
	}
	text, script := bytes.CutPrefix(head[:n], []byte("#!"))
	text, _, _ = bytes.Cut(text, []byte("\n"))
	return strings.TrimSpace(string(text)), script, nil
}

// interpreted returns the rules of which r, a rule about a script with this first line, consists: its interpreter may
// be executed with the script and the first arguments of r. called is the path by which r names the script, and the
// kernel passes the path by which a process calls it; so there is a rule for each usual one. resolve and dirs are those
// of [Rules].
func (r Rule) interpreted(called, line string, resolve func(paths []string) []string, dirs func() []string) (rules []Rule, err error) {
	interpreter, argument, _ := strings.Cut(line, " ")
	argument = strings.TrimSpace(argument)
	one := Rule{Rule: r.Rule, Name: interpreter, Also: []string{r.Program}}
	paths := []string{interpreter}
	if filepath.Base(interpreter) == "env" && argument != "" && !strings.ContainsAny(argument, " -=/") {
		one.Also = append(one.Also, resolve(paths)...)
		one.Name, paths, argument = argument, nil, ""
		for _, dir := range dirs() {
			paths = append(paths, filepath.Join(dir, one.Name))
		}
	}
	for _, path := range resolve(paths) {
		one.Program = path
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if _, script, err := one.shebang(); err != nil || script {
			return nil, errors.Join(err, r.refused(errs.ErrNotSupported, "", "the interpreter of the script, %s, is a script as well: write the rule about its interpreter", path))
		}
		for _, script := range calledBy(called, r.Program) {
			one.First = slices.Concat([]string{argument}[:min(len(argument), 1)], []string{script}, r.First)
			rules = append(rules, one)
		}
		return rules, nil
	}
	return nil, r.refused(errs.ErrNotSupported, "", "the program is a script, and this host lacks its interpreter (%s)", line)
}

// calledBy returns the paths by which a process usually calls the program that a rule names by the path called: that
// path, the one after symbolic links, and those in other names of a usual directory of programs, as /bin is of /usr/bin.
func calledBy(called, real string) []string {
	list := []string{called}
	for _, dir := range catalog.ProgramDirs {
		if same, err := filepath.EvalSymlinks(dir); err == nil && same == filepath.Dir(called) {
			list = append(list, filepath.Join(dir, filepath.Base(called)))
		}
	}
	slices.Sort(list)
	return slices.Compact(append(list, real))
}

// Programs returns the programs that rules guard, each once, but for those in denied, which are files and directories
// of programs that cannot be executed at all. plain are such paths that can be executed with any arguments. All are
// paths after symbolic links. Errors: [errs.ErrInvalid] if a program of plain is guarded; [errs.ErrDenied] if a program
// has a name (a hard link) that no rule guards.
func Programs(rules []Rule, plain, denied []string) (programs []string, err error) {
	for _, r := range rules {
		if slices.ContainsFunc(denied, func(path string) bool { return pathlist.Within(r.Program, path) }) || slices.Contains(programs, r.Program) {
			continue
		}
		info, err := os.Stat(r.Program)
		if err != nil {
			return nil, errs.With("allowing programs", r.Program, err)
		}
		for _, path := range plain {
			other, err := os.Stat(path)
			if pathlist.Within(r.Program, path) || err == nil && os.SameFile(info, other) {
				return nil, r.refused(errs.ErrInvalid, "snapfs profile explain", "another rule of tools.allow lets %s be executed with any arguments (%s)", r.Program, path)
			}
		}
		programs = append(programs, r.Program)
	}
	return programs, checkNames(programs, rules)
}

// checkNames returns an error if a guarded program has another name (a hard link) that is not guarded. By that name a
// process could read the program, and have the dynamic linker start it, or write to it.
func checkNames(guarded []string, rules []Rule) error {
	stats := make([]vfs.Stat, 0, len(guarded))
	for _, path := range guarded {
		st, err := vfs.Lstat(unix.AT_FDCWD, path)
		if err != nil {
			return errs.With("allowing programs", path, err)
		}
		stats = append(stats, st)
	}
	for i, st := range stats {
		var listed uint32
		for _, other := range stats {
			if st.Dev == other.Dev && st.Ino == other.Ino {
				listed++
			}
		}
		if listed < st.Nlink {
			r := rules[slices.IndexFunc(rules, func(r Rule) bool { return r.Program == guarded[i] })]
			return r.refused(errs.ErrDenied, "find / -xdev -samefile "+errs.Quoted(guarded[i])+"   # add a rule with the same arguments for each of the others",
				"the file has %d names (hard links), and rules with arguments for %d", st.Nlink, listed)
		}
	}
	return nil
}

// Allows returns the rule that allows to call program with these arguments, the first of which is the name that it is
// called by; ok is false if none does. The name must be that of the rule or of the program, since programs with several
// names do what their name says.
func Allows(rules []Rule, program string, args []string) (rule Rule, ok bool) {
	i := slices.IndexFunc(rules, func(r Rule) bool {
		return r.Program == program && len(args) > len(r.First) && slices.Equal(args[1:1+len(r.First)], r.First) &&
			slices.Contains([]string{filepath.Base(r.Name), filepath.Base(r.Program)}, filepath.Base(args[0]))
	})
	if i < 0 {
		return Rule{}, false
	}
	return rules[i], true
}

// OnHost returns paths after the symbolic links of the host; a path that does not exist stays as it is.
func OnHost(paths []string) []string {
	list := slices.Clone(paths)
	for i, p := range list {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			list[i] = real
		}
	}
	return list
}

// ProgramDirs returns the usual directories of programs that exist, after symbolic links, each once: /bin is /usr/bin
// on most machines.
func ProgramDirs() (dirs []string) {
	for _, dir := range catalog.ProgramDirs {
		if real, err := filepath.EvalSymlinks(dir); err == nil && !slices.Contains(dirs, real) {
			dirs = append(dirs, real)
		}
	}
	return dirs
}

// Also returns the paths of all [Rule.Also] of rules, each once: they must be executable.
func Also(rules []Rule) (paths []string) {
	for _, r := range rules {
		for _, path := range r.Also {
			if !slices.Contains(paths, path) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// Copies returns the paths of programs of this host with the same content, below the usual directories of programs that
// other programs start, such as /usr/lib/git-core/git.
func (r Rule) Copies() (paths []string) {
	var same []string
	for _, dir := range []string{"/usr/lib", "/usr/libexec", "/usr/local/lib", "/usr/local/libexec"} {
		found, _ := filepath.Glob(filepath.Join(dir, "*", filepath.Base(r.Program))) // the pattern is valid
		same = append(same, found...)
	}
	own, err := os.ReadFile(r.Program)
	if err != nil {
		return nil
	}
	for _, path := range same {
		info, err := os.Lstat(path)
		if err != nil || !info.Mode().IsRegular() || info.Size() != int64(len(own)) || path == r.Program {
			continue
		}
		if content, err := os.ReadFile(path); err == nil && bytes.Equal(content, own) {
			paths = append(paths, path)
		}
	}
	return paths
}
