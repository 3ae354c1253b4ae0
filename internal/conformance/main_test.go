package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTableShowsEachOutcomeAndFailsForABadOne(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.json": `{"Subject":"zfs","Promises":[{"Name":"forks","Outcome":"pass"},{"Name":"clones","Outcome":"not offered"}]}`,
		"b.json": `{"Subject":"plain","Promises":[{"Name":"forks","Outcome":"fail"},{"Name":"more","Outcome":"skip"}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := write(&b, all); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"| promise | plain | zfs |", "| forks | **fail** | yes |", "| more | **skip** | not run |", "| clones | not run | – |",
	} {
		if !strings.Contains(b.String(), line+"\n") {
			t.Errorf("the line %q is not in\n%s", line, &b)
		}
	}
	err = errors.Join(verdict(all), complete(all))
	for _, want := range []string{"plain: forks: fail", "plain: more: skip", "btrfs (user): there are no results"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the verdict lacks %q: %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "zfs") {
		t.Errorf("the verdict blames what is in order: %v", err)
	}
}

func TestAnotherKernelsResultsAreKeptBySubject(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stored := filepath.Join(dir, "kept.json")
	put("first/system", "1 May, Linux 6.1\n")
	put("first/doctor-root.json", `{"powers":[{"name":"fuse","answer":"no","for":"all","since":"2.6","why":"gone"}]}`)
	put("first/conformance/a.json", `{"Subject":"zfs","Promises":[{"Name":"forks","Outcome":"fail"}]}`)
	put("first/conformance/b.json", `{"Subject":"plain","Promises":[{"Name":"forks","Outcome":"pass"},{"Name":"clones","Outcome":"not offered"}]}`)
	put("second/system", "2 May, Linux 6.1\n")
	put("second/conformance/a.json", `{"Subject":"zfs","Promises":[{"Name":"forks","Outcome":"pass"}]}`)
	var tables []string
	for i, run := range []string{"first", "second"} {
		if err := keep(stored, filepath.Join(dir, run)); err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := kernels(&b, stored); (err == nil) != (i == 1) {
			t.Errorf("after the %s run the verdict is %v", run, err)
		}
		tables = append(tables, b.String())
	}
	for _, line := range []string{
		"| fuse | all | 2.6 | **no**: gone | not asked |", "- plain: 1 May, Linux 6.1", "- zfs: 2 May, Linux 6.1",
		"| promise | plain | zfs |", "| forks | yes | yes |", "| clones | – | not run |",
	} {
		if !strings.Contains(tables[1], line+"\n") {
			t.Errorf("the line %q is not in\n%s", line, tables[1])
		}
	}
	if !strings.Contains(tables[0], "| forks | yes | **fail** |\n") {
		t.Errorf("what failed is not in\n%s", tables[0])
	}
}
