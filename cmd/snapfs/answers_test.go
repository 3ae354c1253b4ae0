package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/snapfs/snapfs/internal/timer"
)

// answers returns the names of the schemas of results with --json, for the commands that have others than the one of
// the command's name. Its keys are the words of a command without snapfs, joined by dashes.
func answers() map[string][]string {
	jobs := []string{"job"}
	return map[string][]string{
		"diff":            {"diff", "diff-html"},
		"doctor":          {"doctor", "doctor-sandbox", "doctor-prove", "doctor-prove-record"},
		"evidence-reveal": {"evidence-reveal", "evidence-reveal-text"},
		"exec":            {"exec-detach"},
		"job-approve":     jobs,
		"job-cancel":      jobs,
		"job-reject":      jobs,
		"job-rm":          jobs,
		"job-show":        jobs,
		"job-submit":      {"job", "job-trigger"},
		"logs":            {"logs", "logs-list"},
		"ls":              {"ls", "ls-quiet"},
		"promote":         {"promote", "promote-stages"},
		"receive":         {"receive", "receive-have", "receive-forget"},
		"redo":            {"redo", "redo-list"},
		"undo":            {"undo", "undo-list", "undo-forget"},
	}
}

// silent returns the commands that answer nothing with --json, each with the reason.
func silent() map[string]string {
	const completion = "prints a script for a shell"
	return map[string]string{
		"completion-bash": completion, "completion-fish": completion, "completion-powershell": completion, "completion-zsh": completion,
		"help":     "prints a text for a person",
		"hook":     "speaks the protocol of the agent that calls it",
		"job-work": "job ls and the events have what it did",
		"man":      "prints manual pages",
		"mcp":      "speaks MCP on its standard output",
		"serve":    "its routes answer",
		"shell":    "a terminal session",
	}
}

// A script of testdata checks a schema by the first form, under a condition or not, and a Go test by the second.
var checks = regexp.MustCompile(`(?m)^(?:\[[!a-z]+\] )*schema ([a-z-]+)|\bfits\(t, "([a-z-]+)"`)

// Every command that takes --json has a schema of its result, or a reason why there is none, and a test checks what it
// prints by each of its schemas. A check under a condition of a script counts if it runs for root, with /dev/fuse and
// /dev/net/tun and without systemd, as in .ci/run.
func TestEveryAnswerIsCheckedByItsSchema(t *testing.T) {
	checked := map[string]bool{"error": false}
	files, err := filepath.Glob("testdata/script/*.txtar")
	tests, terr := filepath.Glob("*_test.go")
	if err != nil || terr != nil {
		t.Fatal(err, terr)
	}
	for _, file := range append(files, tests...) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range checks.FindAllSubmatch(text, -1) {
			if c := string(m[0]); !strings.Contains(c, "[systemd]") && !strings.Contains(c, "[!root]") && !strings.Contains(c, "[served]") {
				checked[string(m[1])+string(m[2])] = true
			}
		}
	}
	used := map[string]bool{"error": true}
	var visit func(cmd *cobra.Command, path []string)
	visit = func(cmd *cobra.Command, path []string) {
		for _, sub := range cmd.Commands() {
			if !sub.Hidden {
				visit(sub, append(slices.Clone(path), sub.Name()))
			}
		}
		name := strings.Join(path, "-")
		if !cmd.Runnable() || cmd.HasSubCommands() {
			return
		}
		names, special := answers()[name]
		if !special {
			names = []string{name}
		}
		if why, ok := silent()[name]; ok != (why != "") || ok && special {
			t.Errorf("%s: %q", name, why)
		} else if ok {
			return
		}
		for _, schema := range names {
			if used[schema] = true; documents()[schema] == nil {
				t.Errorf("snapfs %s has --json, and no schema %s", strings.Join(path, " "), schema)
			}
		}
	}
	visit(newRoot(&app{ui: &ui{}}, nil), nil)
	for name := range documents() {
		if !used[name] {
			t.Errorf("no command answers by the schema %s: add it to answers", name)
		}
		if !checked[name] {
			t.Errorf("no test checks what is printed by the schema %s", name)
		}
	}
	for name := range checked {
		if documents()[name] == nil {
			t.Errorf("a test checks by the schema %s, which is no result's", name)
		}
	}
}

// The answers of snapfs timer fit their schemas where systemd runs, too: here a script stands in for systemctl.
func TestTimerAnswersByItsSchema(t *testing.T) {
	dir := t.TempDir()
	control := filepath.Join(dir, "systemctl")
	if err := os.WriteFile(control, []byte("#!/bin/sh\ncase $1 in is-*) echo \"${1#is-}\";; esac\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	m := timer.Manager{Dir: filepath.Join(dir, "units"), Booted: dir, Control: []string{control}}
	out, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	a := &app{ui: &ui{out: out, json: true}}
	if err := m.Install(t.Context(), []string{"/bin/true", "gc"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := a.printTimer(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil || !strings.Contains(string(text), `"installed":true`) {
		t.Errorf("%s, %v", text, err)
	}
	fits(t, "timer-install", string(text))
}
