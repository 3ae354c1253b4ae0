package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The tour in README.md prints exactly what it shows, to root and to others.
func TestTheTourPrintsWhatItShows(t *testing.T) { asRoot(t, tour) }

func TestTheTourPrintsWhatItShowsToAnOrdinaryUser(t *testing.T) { asUserLater(t, tour) }

func tour(t *testing.T) {
	steps := tourSteps(t)
	b := newDesk(t)
	if err := errors.Join(
		os.Remove(filepath.Join(b.workspace, "real")),
		os.WriteFile(filepath.Join(b.workspace, "README.md"), []byte("read this\n"), 0o644),
		os.WriteFile(filepath.Join(b.workspace, "server.conf"), []byte("port = 8080\n"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	for _, git := range []string{
		"init -q", "symbolic-ref HEAD refs/heads/main", "config user.name Ada", "config user.email ada@example.org", "add .", "commit -qm start",
	} {
		if out, status := b.typed("git " + git); status != 0 {
			t.Fatal(out)
		}
	}
	commit := regexp.MustCompile(`(?m)(^| (as|to) )[0-9a-f]{7}\b`)
	seconds := regexp.MustCompile(` [0-9]s\b`)
	tenths := regexp.MustCompile(`\b[0-9]\.[0-9]s\b`)
	undo := regexp.MustCompile(`undo [0-9a-z]{10}`)
	words := regexp.MustCompile(`\b[0-9] seconds?\b`)
	status := 0
	for _, s := range steps {
		var got string
		if s.command == "echo $?" {
			got = fmt.Sprintln(status)
		} else {
			got, status = b.typed(s.command)
		}
		got = seconds.ReplaceAllString(strings.ReplaceAll(got, b.workspace, "/home/ada/project"), " 0s")
		got = strings.ReplaceAll(got, os.Getenv("HOME")+"/", "/home/ada/")
		got = undo.ReplaceAllString(tenths.ReplaceAllString(got, "0.1s"), "undo 6x2k0v9fqa")
		got = commit.ReplaceAllString(got, "${1}5e1ec7e")
		got = strings.ReplaceAll(got, "\n\n", "\n") // as what README.md shows is read
		time.Sleep(20 * time.Millisecond)           // drift is told by the clock of the filesystem, and nobody types so fast
		got = words.ReplaceAllString(got, "0 seconds")
		if frozen := strings.Contains(got, "  frozen  "); got != s.shows && !frozen { // it shows a live base
			t.Errorf("$ %s\n%s\nREADME.md shows:\n%s", s.command, got, s.shows)
		}
	}
}

// typed is what a shell shows of a command, and its status.
func (b *desk) typed(command string) (string, int) {
	b.t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir = b.workspace
	cmd.Env = append(b.env(), "PATH="+filepath.Dir(program())+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

type tourStep struct{ command, shows string }

// tourSteps reads the commands of the tour, and what follows each.
func tourSteps(t *testing.T) (steps []tourStep) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(filepath.Dir(program()), "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(data), "## A tour\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for line := range strings.Lines(text) {
		line, shown := strings.CutPrefix(line, "    ")
		command, typed := strings.CutPrefix(line, "$ ")
		more, goesOn := strings.CutPrefix(line, "> ")
		switch {
		case shown && typed:
			steps = append(steps, tourStep{command: strings.TrimSpace(command)})
		case shown && goesOn && len(steps) > 0 && steps[len(steps)-1].shows == "":
			steps[len(steps)-1].command += "\n" + strings.TrimSpace(more)
		case shown && len(steps) > 0:
			steps[len(steps)-1].shows += line
		}
	}
	if len(steps) < 10 {
		t.Fatalf("README.md has a tour of %d commands", len(steps))
	}
	return steps
}
