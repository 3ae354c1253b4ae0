package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/guarded"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/internal/dpkg"
)

// NotHeld returns, as sentences for a person, the ways in which a process can get around the rules of a
// profile about programs and paths, and the rules that apply to no program of this host or let none be executed.
// readable are the directories that every sandbox may read.
func (s *Sandbox) NotHeld(readable []string) []string {
	list := []string{}
	if len(s.Tools.Deny) > 0 && s.Tools.Allow == nil {
		list = append(list, "tools.deny: a copy of a denied program under another path can be executed; tools.allow has no such gap")
	}
	if s.Tools.Allow != nil {
		list = append(list, "tools.allow: the dynamic linker, which every program needs, can be started with a file as its argument, "+
			"and a program can execute a file that it holds in memory alone (memfd)")
	}
	if s.Data.Writable != nil {
		list = append(list, "data.writable: the mode, the owner, the times and the attributes of a file elsewhere can be changed; a promotion shows that")
	}
	list = append(list, dataNotHeld(&s.Data)...)
	list = append(list, s.unreadable(readable)...)
	for _, rule := range s.Tools.Deny {
		if pkg, ok := catalog.PackageOf(rule); ok {
			if _, why := packagePrograms(pkg); why != "" {
				list = append(list, "tools.deny "+rule+": "+why)
			}
		}
	}
	for _, rule := range s.Tools.Allow {
		list = append(list, notHeldBy(rule)...)
	}
	if s.Tools.HasArguments() {
		list = append(list, s.argumentsNotHeld()...)
	}
	if slices.ContainsFunc(s.Tools.Allow, func(rule string) bool {
		_, _, pinned := catalog.CutDigest(rule)
		_, _, arguments := catalog.CutArguments(rule)
		return !pinned && !arguments
	}) {
		list = append(list, "tools.allow: a process that may write to an allowed program can change what it does; a rule with a digest (@sha256:) has no such gap")
	}
	return list
}

// dataNotHeld returns the sentences of [Sandbox.NotHeld] about readable, read-only and recorded paths and about labels.
func dataNotHeld(d *catalog.Data) (list []string) {
	if d.Readable != nil {
		list = append(list, "data.readable: the names, the sizes, the times and the attributes of files elsewhere, and the targets of symbolic links, can be read by who knows the path; "+
			"so can a file that has another name (hard link) in a readable directory")
	}
	if slices.ContainsFunc(d.ReadOnly, pathlist.IsPattern) {
		list = append(list, "data.read-only: a pattern holds for the files that match it when the sandbox starts, and not for later ones")
	}
	if d.Recorded != nil {
		list = append(list, "data.recorded: not recorded is a read by a 32-bit program, by a program that changes the path in its memory at the right moment, "+
			"by a path through another process or thread below /proc or through a symbolic link to /proc, in a root directory of the process's own (chroot, openat2), "+
			"and by another name (hard link) that the file has when the sandbox starts")
	}
	if d.Labelled() {
		list = append(list, labelsNotHeld...)
	}
	return list
}

// labelsNotHeld are the sentences of [Sandbox.NotHeld] about labelled files.
var labelsNotHeld = []string{
	"data.secret and data.private: not recognised is content that was changed, encrypted, or encoded otherwise than in base64, in hexadecimal, " +
		"with escapes of JSON or of a URL, or with gzip, zlib or zip; nor is a piece of less than 63 bytes that is neither a line nor a value",
	"data.secret: not recognised is a value of less than 8 bytes, and of less than 16 bytes if it has only letters or only digits",
	"data.private: not recognised is a line of less than 24 bytes, and one with neither a digit nor an at sign",
	"data.secret and data.private: what a person has snapfs show or copy (its output, snapfs diff, snapfs cp, a port) is not searched, " +
		"and the arguments of a command are redacted in records, but not in the file of a job (snapfs job); " +
		"of commits of git only the files that they leave are searched, and not what earlier commits had in them; " +
		"content that a file gets while the sandbox runs is known to its network from the next start on",
}

// argumentsNotHeld returns the sentences of [Sandbox.NotHeld] about the rules with arguments of tools.allow.
func (s *Sandbox) argumentsNotHeld() []string {
	list := []string{
		"tools.allow with arguments: the first arguments are held, and not what the program does then: with further arguments, " +
			"and with its configuration, hooks, aliases, pagers and libraries, as far as a process in the sandbox can write these",
		"tools.allow with arguments: what such a program starts itself can start it again with any arguments, by /proc/PID/exe",
		"tools.allow with arguments: a copy of the program, brought in or built inside, can be started by the dynamic linker",
		"tools.allow with arguments: the program has the rights of the sandbox, also if a process that calls it has given up some by Landlock; " +
			"of one that did by seccomp, capabilities or its root directory the call is refused",
	}
	rules, notes, err := guarded.Rules(&s.Tools, guarded.OnHost, guarded.ProgramDirs)
	if err != nil {
		return append(list, "a sandbox does not start here: "+err.Error())
	}
	list = append(list, notes...)
	var seen []string
	for _, r := range rules {
		if interpreterText(filepath.Base(r.Program)) != "" {
			line := "tools.allow " + r.Rule + ": " + filepath.Base(r.Program) + " obeys the file or text that these arguments name, also if a process in the sandbox has written it; data.read-only can hold that"
			if !slices.Contains(seen, line) {
				seen = append(seen, line)
			}
		}
		for _, path := range r.Copies() {
			if line := "tools.allow " + r.Rule + ": " + path + " is a copy of the program, and the dynamic linker can start it; a rule with its path and the same arguments has no such gap"; !slices.Contains(seen, line) {
				seen = append(seen, line)
			}
		}
	}
	return append(list, seen...)
}

// notHeldBy returns, as sentences for [Sandbox.NotHeld], how a process can get around rule, one of tools.allow.
func notHeldBy(rule string) (list []string) {
	add := func(what string) { list = append(list, "tools.allow "+rule+": "+what) }
	if pkg, ok := catalog.PackageOf(rule); ok {
		programs, why := packagePrograms(pkg)
		if why != "" {
			add(why)
		}
		for _, program := range programs {
			if can := interpreterText(filepath.Base(program)); can != "" {
				add(can)
			}
		}
		return list
	}
	if _, _, ok := catalog.CutArguments(rule); ok {
		return nil // see argumentsNotHeld
	}
	path, digest, pinned := catalog.CutDigest(rule)
	if pinned {
		if why := otherContent(path, digest); why != "" {
			add(why)
		}
	}
	rule = path // without the digest, which is long
	if strings.HasSuffix(rule, "/*") {
		add("an interpreter in it can do by itself what other programs do")
	} else if can := interpreterText(filepath.Base(rule)); can != "" {
		add(can)
	}
	return list
}

// maxProgram is the largest program, in bytes, whose content is compared with a digest.
const maxProgram = 4 << 30

// otherContent returns why a sandbox of this host does not start with a rule that allows the program at path only with
// this SHA-256 digest, or "" if the program of the host has it.
func otherContent(path, digest string) string {
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxProgram) { // opening a device may have effects
		err = errors.New(path + " is no regular file of up to 4 GiB")
	}
	if err != nil {
		return "a sandbox does not start here: " + err.Error()
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "a sandbox does not start here: " + err.Error()
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, maxProgram)); err != nil {
		return "a sandbox does not start here: " + err.Error()
	}
	if has := hex.EncodeToString(h.Sum(nil)); has != digest {
		return "a sandbox does not start here, unless the sandbox has another version of the program: this one has sha256:" + has
	}
	return ""
}

// packagePrograms returns the programs of a Debian package of this host, or why a rule about it applies to none.
func packagePrograms(pkg string) (programs []string, why string) {
	programs, installed, err := dpkg.Programs(pkg)
	switch {
	case err != nil:
		return nil, err.Error()
	case !installed:
		return nil, "no package of this name is installed here, so the rule applies to no program"
	case len(programs) == 0:
		return nil, "this package installed no program, so the rule applies to none; a symbolic link does not count"
	}
	return programs, ""
}

// interpreters are programs that can do by themselves what other programs do, with the way to make them do it.
var interpreters = []struct {
	names []string
	way   string
}{
	{[]string{"sh", "bash", "dash", "zsh", "ksh", "mksh", "fish"}, "sh -c TEXT"},
	{[]string{"python", "pypy"}, "python -c TEXT, python x.py"},
	{[]string{"node", "nodejs", "deno", "bun"}, "node -e TEXT, node x.js"},
	{[]string{"perl", "ruby", "lua", "luajit", "php", "tclsh", "guile", "expect", "gdb"}, "a script"},
	{[]string{"awk", "gawk", "mawk", "nawk", "sed", "ed", "ex", "vi", "vim", "vim.tiny", "nvim", "emacs"}, "a script"},
	{[]string{"java", "go"}, "a program as an argument"},
	{[]string{"busybox", "toybox"}, "busybox rm"},
	{[]string{"find"}, "find -delete"},
	{[]string{"make", "ninja", "cmake"}, "a makefile"},
}

// starters are programs that execute other programs, with any arguments.
var starters = []string{"env", "xargs", "nice", "nohup", "timeout", "setsid", "stdbuf", "time", "watch", "parallel", "chroot", "flock", "find", "make", "busybox"}

// interpreterText returns a sentence for a person if the program called name, once it may be executed, can do what
// other programs do: as an interpreter, or because it starts other programs. It returns "" for another program.
func interpreterText(name string) string {
	base := strings.TrimRight(name, "0123456789.-") // python3.12, lua5.4
	starts := slices.Contains(starters, name)
	for _, i := range interpreters {
		switch {
		case !slices.Contains(i.names, name) && !slices.Contains(i.names, base):
		case starts:
			return name + " can do by itself what other programs do (" + i.way + "), and executes other allowed programs with any arguments"
		default:
			return name + " is an interpreter and can do by itself what other programs do (" + i.way + ")"
		}
	}
	if starts {
		return name + " executes other allowed programs with any arguments"
	}
	return ""
}
