package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/internal/treetest"
)

// TestATerminalIsARealOne: what a person does at a terminal works in a sandbox.
func TestATerminalIsARealOne(t *testing.T) { asRoot(t, atATerminal) }

func TestATerminalIsARealOneForAnOrdinaryUser(t *testing.T) { asUser(t, atATerminal) }

func asRoot(t *testing.T, test func(*testing.T)) {
	treetest.NeedRoot(t)
	test(t)
}

// asUserLater is asUser for a test that root runs too, of code that is the same for both: where root runs it, make
// test leaves the user to make test-long.
func asUserLater(t *testing.T, test func(*testing.T)) {
	if os.Geteuid() != 0 || treetest.Long(t) {
		asUser(t, test)
	}
}

func asUser(t *testing.T, test func(*testing.T)) {
	if treetest.AsUser(t) {
		test(t)
	}
}

// longWork says "going" when it is in front, and not when it is typed.
const longWork = "sh -c 'echo go\"\"ing; exec sleep 100'\n"

func atATerminal(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, b *desk){
		"job control": func(t *testing.T, b *desk) {
			p := sit(t, b, "run", "--", "sh", "-i")
			p.sees("ready> ")
			p.types(longWork)
			p.sees("going")
			p.types("\x1a")
			p.sees("Stopped")
			p.types("bg; jobs\n")
			p.sees("Running")
			p.types("kill %1; wait; fg\n")
			p.sees("ready> ")
			p.types("tty; exit 3\n")
			p.sees("/dev/")
			if st := p.leaves(); st != 3 {
				t.Errorf("status %d", st)
			}
		},
		"Ctrl-Z stops snapfs and its command, and fg resumes both": func(t *testing.T, b *desk) {
			p := sitAtShell(t, b)
			p.types("snapfs run -- sh -c 'echo go\"\"ing; while read x; do echo \"<$x>\"; done'\n")
			p.sees("going")
			p.types("one\n")
			p.sees("<one>")
			p.types("\x1a")
			p.sees("Stopped")
			p.types("jobs -s; echo it is st\"\"ill\n")
			p.sees("it is still")
			p.types("fg\n")
			p.sees("fg\r\n")
			p.types("two\n")
			p.sees("<two>")
			p.types("\x1a")
			p.sees("Stopped")
			p.types("bg\n")
			p.sees("snapfs run")
			p.types("echo al\"\"ive; fg\n")
			p.sees("alive")
			p.types("three\n")
			p.sees("<three>")
			p.types("\x04")
			p.sees("nothing changed")
			p.types("echo st$?; exit\n")
			p.sees("st0")
			p.leaves()
		},
		"what was begun in the background takes the terminal when it comes to the front": func(t *testing.T, b *desk) {
			p := sitAtShell(t, b)
			p.types("snapfs run -- sh -c 'echo go\"\"ing; read x; echo \"<$x>\"' &\n")
			p.sees("going")
			p.types("echo pr\"\"ompt; jobs\n")
			p.sees("prompt")
			p.sees("Running")
			p.types("fg\n")
			p.sees("fg\r\n")
			p.types("typed\n")
			p.sees("<typed>")
			p.sees("nothing changed")
			p.types("echo al\"\"ive; exit\n")
			p.sees("alive\r\n")
			p.leaves()
		},
		"Ctrl-C ends the command, not snapfs": func(t *testing.T, b *desk) {
			p := sit(t, b, "run", "--", "sh", "-c", "echo > new; echo up; exec sleep 100")
			p.sees("up")
			p.types("\x03")
			p.sees("[a/k/d/l]")
			p.types("d\n")
			if st := p.leaves(); st != 130 {
				t.Errorf("status %d", st)
			}
			b.real()
		},
		"a question that is not understood": func(t *testing.T, b *desk) {
			p := sit(t, b, "run", "--", "sh", "-c", "echo > new")
			for _, answer := range []string{"?", "what", ""} {
				p.sees("[a/k/d/l]")
				p.types(answer + "\n")
				p.sees("apply    apply the workspace's changes to the real tree")
				p.sees("keep     change nothing")
			}
			p.sees("[a/k/d/l]")
			p.types("d\n")
			if st := p.leaves(); st != 0 {
				t.Errorf("status %d", st)
			}
			b.real()
		},
		"Ctrl-D, and echo": func(t *testing.T, b *desk) {
			p := sit(t, b, "run", "--", "sh", "-c", "echo re\"\"ady; read -r x; echo \"<$x>\"; stty -echo; echo quiet; read -r y; stty echo; echo \"<$y>\"; cat; echo end")
			p.sees("ready") // and so the person's terminal is in raw mode
			p.types("typed\n")
			p.sees("typed\r\n<typed>")
			p.sees("quiet")
			p.types("hushed\n")
			p.sees("<hushed>")
			if strings.Contains(p.screen.String(), "hushed\r\n<") {
				t.Error("what was hushed was echoed")
			}
			p.types("\x04")
			p.sees("end")
			if st := p.leaves(); st != 0 {
				t.Errorf("status %d", st)
			}
		},
		"a new size": func(t *testing.T, b *desk) {
			p := sit(t, b, "run", "--", "sh", "-c", `stty size; trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.05; done`)
			p.sees("24 80")
			p.sees("up")
			if err := unix.IoctlSetWinsize(int(p.keyboard.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 132}); err != nil {
				t.Fatal(err)
			}
			p.sees("50 132")
			p.leaves()
		},
		"vi": func(t *testing.T, b *desk) {
			treetest.NeedProgram(t, "vi")
			p := sit(t, b, "run", "--keep", "--name", "edit", "--", "vi", "text")
			p.sees("~")
			p.types("ihello\x1b:wq\r")
			if st := p.leaves(); st != 0 {
				t.Errorf("status %d", st)
			}
			if got := b.snapfs("exec", "edit", "cat", "text").want(0).stdout; got != "hello\n" {
				t.Errorf("vi wrote %q", got)
			}
			b.real()
		},
		"less": func(t *testing.T, b *desk) {
			treetest.NeedProgram(t, "less")
			p := sit(t, b, "run", "--", "sh", "-c", "seq 1000 | LESSHISTFILE=- less")
			p.sees("22")
			p.types("G")
			p.sees("1000")
			p.types("q")
			if st := p.leaves(); st != 0 {
				t.Errorf("status %d", st)
			}
		},
		"the end of the sandbox's time": func(t *testing.T, b *desk) {
			b.snapfs("new", "box", "--ttl", "1s").want(0)
			p := sit(t, b, "exec", "box", "--", "sh", "-c", "echo up; exec sleep 100")
			p.sees("up")
			p.sees("snapfs: paused: ttl 1s; resume it: snapfs limits box --set ttl=")
			if st := p.leaves(); st != 124 {
				t.Errorf("status %d", st)
			}
		},
		"exec, too": func(t *testing.T, b *desk) {
			b.snapfs("new", "box").want(0)
			p := sit(t, b, "exec", "box", "--", "sh", "-i")
			p.sees("ready> ")
			p.types(longWork)
			p.sees("going")
			p.types("\x03")
			p.sees("ready> ")
			p.types("stty size; exit 4\n")
			p.sees("24 80")
			if st := p.leaves(); st != 4 {
				t.Errorf("status %d", st)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, newDesk(t)) })
	}
}

// sitAtShell starts a shell with job control that finds snapfs.
func sitAtShell(t *testing.T, b *desk) *person {
	t.Helper()
	t.Setenv("PATH", treetest.Built()+":"+os.Getenv("PATH"))
	t.Setenv("HISTFILE", "") // this shell runs outside: its history would be a file in the real home
	p := sitAt(t, b, exec.Command("bash", "--norc", "-i"))
	p.sees("ready> ")
	return p
}

func TestThePersonDecides(t *testing.T) {
	treetest.NeedRoot(t)
	for answer, want := range map[string]struct{ sees, kept string }{
		"d\n": {"", ""}, "keep\n": {"kept as fix", "fix\n"}, "\x04": {"kept as fix", "fix\n"}, "\x03": {"kept as fix", "fix\n"},
		"what\nlook\nd\n": {"+sand", ""},
	} {
		t.Run(strings.ReplaceAll(answer, "\n", " "), func(t *testing.T) {
			b := newDesk(t)
			p := sit(t, b, "run", "--name", "fix", "--", "sh", "-c", "printf 'sand\\033[2J\\n' > new")
			p.sees("  file  ")
			for line := range strings.SplitAfterSeq(answer, "\n") {
				if line == "" {
					break
				}
				p.sees("[a/k/d/l]")
				p.types(line)
			}
			if want.sees != "" && !strings.Contains(p.screenAtEnd(), want.sees) {
				t.Errorf("%q is not on the screen:\n%q", want.sees, p.screen.String())
			}
			if strings.Contains(p.screenAtEnd(), "\x1b[2J") {
				t.Error("an escape sequence reached the terminal")
			}
			if got := b.snapfs("ls", "-q").want(0).stdout; got != want.kept {
				t.Errorf("kept %q, want %q", got, want.kept)
			}
			b.real()
		})
	}
}

// What takes something away shows what, and does it only for a person who agrees.
func TestUndoAndRmAllAsk(t *testing.T) {
	treetest.NeedRoot(t)
	b := newDesk(t)
	b.snapfs("new", "fix").want(0)
	b.snapfs("exec", "fix", "--", "touch", "new").want(0)
	b.snapfs("apply", "fix").want(0)
	asks := func(answer string, args ...string) string {
		p := sit(t, b, args...)
		p.sees("[y/n]")
		p.types(answer)
		return p.screenAtEnd()
	}
	for _, no := range []string{"n\n", "\x04", "\x03"} {
		if screen := asks(no, "undo"); !strings.Contains(screen, " of fix, ") || !strings.Contains(screen, "undid nothing") {
			t.Errorf("%q to undo:\n%q", no, screen)
		}
		if screen := asks(no, "rm", "--all"); !strings.Contains(screen, "remove fix?") || !strings.Contains(screen, "removed nothing") {
			t.Errorf("%q to rm --all:\n%q", no, screen)
		}
	}
	if b.snapfs("ls", "-q").want(0).stdout != "fix\n" {
		t.Error("rm --all removed the sandbox although the person declined")
	}
	if _, err := os.Stat(filepath.Join(b.workspace, "new")); err != nil {
		t.Error(err)
	}
	if screen := asks("y\n", "undo"); !strings.Contains(screen, "undid 1 change of fix") {
		t.Errorf("yes to undo:\n%q", screen)
	}
	p := sit(t, b, "rm", "--all", "--yes")
	if screen := p.screenAtEnd(); screen != "fix\r\n" {
		t.Errorf("rm --all --yes:\n%q", screen)
	}
}

// screenAtEnd is all that was on the screen when the program had ended.
func (p *person) screenAtEnd() string {
	p.t.Helper()
	if p.cmd.ProcessState == nil {
		p.leaves()
	}
	<-p.closed
	return p.screen.String()
}
