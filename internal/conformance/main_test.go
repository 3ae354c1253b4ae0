package main

import (
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
	err = verdict(all)
	for _, want := range []string{"plain: forks: fail", "plain: more: skip", "btrfs (user): there are no results"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the verdict lacks %q: %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "zfs") {
		t.Errorf("the verdict blames what is in order: %v", err)
	}
}
