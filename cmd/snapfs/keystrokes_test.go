package main

import (
	"fmt"
	"testing"
)

// TestNoCommandKeepsTheTerminal: what a person types after a command in a sandbox reaches the
// person's shell, although a process of the command goes on and reads all that it can.
func TestNoCommandKeepsTheTerminal(t *testing.T) { asRoot(t, keystrokes) }

func TestNoCommandKeepsTheTerminalOfAnOrdinaryUser(t *testing.T) { asUserLater(t, keystrokes) }

// reader is a command that leaves a process which reads each of its streams as long as it can, and
// collects what it reads in a file.
const reader = `sh -c 'for fd in 0 1 2; do (setsid sh -c "echo >> ready; while read -r x; do echo \"\$x\" >> got; done <&$fd" 2>/dev/null &); done; until [ $(wc -l < ready) = 3 ]; do sleep 0.01; done 2>/dev/null; echo left'`

func keystrokes(t *testing.T) {
	for name, line := range map[string]string{
		"output in a pipe":          "snapfs exec box -- " + reader + " | cat",
		"input from nowhere":        "snapfs exec box -- " + reader + " </dev/null",
		"messages alone":            "snapfs exec box -- " + reader + " </dev/null | cat",
		"a terminal of the sandbox": "snapfs exec box -- " + reader,
	} {
		t.Run(name, func(t *testing.T) {
			b := newDesk(t)
			b.snapfs("new", "box").want(0)
			p := sitAtShell(t, b)
			p.types(line + "; echo en\"\"ded\n")
			p.sees("left")
			p.sees("ended")
			for i := range 12 {
				p.types(fmt.Sprintf("echo typed$((%d+100)); read -s x; echo \"<$x>\"\n", i))
				p.sees(fmt.Sprintf("typed%d", i+100))
				p.types("secret\n")
				p.sees("<secret>")
			}
			if got := b.snapfs("exec", "box", "sh", "-c", "cat got 2>/dev/null; true").want(0).stdout; got != "" {
				t.Errorf("the sandbox read %q", got)
			}
			p.types("exit\n")
			p.leaves()
		})
	}
}

// TestACommandInTheBackgroundReadsNoKeys: it has no terminal while it runs either.
func TestACommandInTheBackgroundReadsNoKeys(t *testing.T) {
	asRoot(t, func(t *testing.T) {
		b := newDesk(t)
		p := sitAtShell(t, b)
		// The shell shows the line as well, which must not be taken for what the command writes.
		p.types("snapfs run --keep --name box -- sh -c 'echo u\"\"p >&2; while read -r x <&2; do echo \"$x\" >> got; done; [ -t 2 ] && echo terminal >> got; while :; do sleep 0.05; done' </dev/null >/dev/null &\n")
		p.sees("up")
		for i := range 12 {
			p.types(fmt.Sprintf("echo typed$((%d+100))\n", i))
			p.sees(fmt.Sprintf("typed%d", i+100))
		}
		p.types("kill %1; wait; exit\n")
		p.leaves()
		if got := b.snapfs("diff", "box", "--patch").want(0).stdout; got != "" {
			t.Errorf("the command read the terminal:\n%s", got)
		}
	})
}
