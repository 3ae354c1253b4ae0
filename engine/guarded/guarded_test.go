package guarded

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
)

// programs makes files in a directory: one that is no script, another name of it, a link to it, and a script.
func programs(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	at := func(name string) string { return filepath.Join(dir, name) }
	err = errors.Join(err, os.WriteFile(at("tool"), []byte("\x7fELF"), 0o755), os.Symlink("tool", at("link")),
		os.WriteFile(at("two"), []byte("\x7fELF"), 0o755), os.Link(at("two"), at("other")), os.WriteFile(at("script"), []byte("#!/usr/bin/env tool\n"), 0o755),
		os.WriteFile(at("plain"), []byte("#!"+at("tool")+" -x\necho"), 0o755), os.WriteFile(at("twice"), []byte("#!"+at("script")), 0o755), os.WriteFile(at("lost"), []byte("#!/nonexistent"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// rulesOf returns the rules of a profile whose list allow has these entries, in which DIR is a directory.
func rulesOf(dir string, allow ...string) ([]Rule, []string, error) {
	for i := range allow {
		allow[i] = strings.ReplaceAll(allow[i], "DIR", dir)
	}
	return Rules(&catalog.Tools{Allow: allow}, OnHost, func() []string { return []string{dir} })
}

// A call is allowed if its first arguments are those of a rule, and it is called by the program's name.
func TestOnlyTheFirstArgumentsOfARuleAreAllowed(t *testing.T) {
	dir := programs(t)
	rules, notes, err := rulesOf(dir, "tool status", "DIR/link diff --stat", "two", "absent x")
	if err != nil || len(rules) != 2 || len(notes) != 1 || !strings.Contains(notes[0], "absent x") {
		t.Fatalf("%+v, %v, %v", rules, notes, err)
	}
	program := filepath.Join(dir, "tool")
	for args, want := range map[string]string{
		"tool status": "tool status", "tool status -s": "tool status", program + " status": "tool status", "link diff --stat x": "DIR/link diff --stat", "tool diff --stat": "DIR/link diff --stat",
		"tool": "", "tool push": "", "tool -c x status": "", "tool statu": "", "tool statusx": "", "tool diff": "", "tool diff x --stat": "", "tool-status": "", "tool-status status": "", " status": "",
	} {
		rule, ok := Allows(rules, program, strings.Split(args, " "))
		if got := rule.Rule; ok != (want != "") || got != strings.ReplaceAll(want, "DIR", dir) {
			t.Errorf("%q: %q, %v", args, got, ok)
		}
	}
	if _, ok := Allows(rules, filepath.Join(dir, "two"), []string{"tool", "status"}); ok {
		t.Error("another program is allowed")
	}
}

// Rules that could not be held are errors, and a program that is denied is not guarded.
func TestRulesThatCannotBeHeldAreRefused(t *testing.T) {
	dir := programs(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, c := range []struct {
		name, rule    string
		plain, denied []string
		programs      int
		want          error
	}{
		{"alone", "tool x", nil, nil, 1, nil},
		{"beside another", "tool x", []string{at("two")}, nil, 1, nil},
		{"allowed itself", "tool x", []string{at("tool")}, nil, 0, errs.ErrInvalid},
		{"in an allowed directory", "tool x", []string{dir}, nil, 0, errs.ErrInvalid},
		{"allowed by another name", "two x", []string{at("other")}, nil, 0, errs.ErrInvalid},
		{"with another name", "two x", nil, nil, 0, errs.ErrDenied},
		{"denied", "tool x", nil, []string{dir}, 0, nil},
	} {
		rules, _, err := rulesOf(dir, c.rule)
		var list []string
		if err == nil {
			list, err = Programs(rules, c.plain, c.denied)
		}
		if !errors.Is(err, c.want) || err == nil && len(list) != c.programs {
			t.Errorf("%s: %v, %v", c.name, list, err)
		}
	}
	if rules, _, err := rulesOf(dir, "two x", "other x"); err != nil {
		t.Error(err)
	} else if list, err := Programs(rules, nil, nil); err != nil || len(list) != 2 {
		t.Errorf("both names: %v, %v", list, err)
	}
}

// A rule about a script is one about its interpreter, as the kernel executes that.
func TestAScriptIsAnArgumentOfItsInterpreter(t *testing.T) {
	dir := programs(t)
	rules, _, err := rulesOf(dir, "script test", "DIR/plain a b")
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for args, want := range map[string]bool{
		"tool DIR/script test": true, "tool DIR/script test more": true, "DIR/tool -x DIR/plain a b": true,
		"tool DIR/script": false, "tool DIR/script other": false, "tool test": false, "DIR/tool DIR/plain a b": false, "tool -x DIR/script test": false, "script test": false,
	} {
		if _, ok := Allows(rules, at("tool"), strings.Split(strings.ReplaceAll(args, "DIR", dir), " ")); ok != want {
			t.Errorf("%s: %v", args, ok)
		}
	}
	env, err := filepath.EvalSymlinks("/usr/bin/env")
	if also := Also(rules); err != nil || len(also) != 3 || also[0] != at("script") || also[1] != env || also[2] != at("plain") {
		t.Errorf("%q, %v", also, err)
	}
	for _, rule := range []string{"twice x", "lost x"} {
		if _, _, err := rulesOf(dir, rule); !errors.Is(err, errs.ErrNotSupported) {
			t.Errorf("%s: %v", rule, err)
		}
	}
}
