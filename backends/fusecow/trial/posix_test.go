//go:build linux && posix

package trial_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPOSIX runs pjdfstest, at SNAPFS_PJDFSTEST, on the mount. Each case must pass unless testdata lists it
// with a reason, and must fail if it is listed. `make posix` downloads the suite and runs this.
func TestPOSIX(t *testing.T) {
	suite := os.Getenv("SNAPFS_PJDFSTEST")
	if suite == "" {
		t.Fatal("SNAPFS_PJDFSTEST names no program; try make posix")
	}
	h := newHost(t)
	other := t.TempDir() + "/other"
	h.must(os.Mkdir(other, 0o755))
	h.must(exec.Command("mount", "-t", "tmpfs", "other", other).Run())
	defer func() { h.must(exec.Command("umount", other).Run()) }()
	h.up()
	config, err := os.ReadFile("testdata/pjdfstest.toml")
	h.must(err)
	cases := map[string][]string{}
	for _, part := range []struct{ remount, pattern string }{{"false", ""}, {"true", "erofs"}} {
		file := t.TempDir() + "/config.toml"
		h.must(os.WriteFile(file, bytes.Replace(config, []byte("allow_remount = true"), []byte("allow_remount = "+part.remount), 1), 0o644))
		cmd := exec.Command(suite, "-c", file, "-p", h.mount, "-s", other, part.pattern)
		cmd.Env = append(os.Environ(), "PATH="+remounter(h)+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s\n%v", out, err)
		}
		for _, m := range regexp.MustCompile(`(?m)^(\S+) +(ok|FAILED|skipped|failed as expected|PASSED UNEXPECTEDLY)$`).FindAllStringSubmatch(string(out), -1) {
			if m[2] != "skipped" || !strings.Contains(m[1], "::erofs_") {
				cases[m[2]] = append(cases[m[2]], m[1])
			}
		}
	}
	h.down()
	for what, list := range cases {
		t.Logf("%s: %d", what, len(list))
	}
	if len(cases["ok"]) < 380 {
		t.Errorf("only %d cases passed", len(cases["ok"]))
	}
	want := reasons(h, "testdata/pjdfstest.skipped")
	slices.Sort(cases["skipped"])
	if names := slices.Sorted(maps.Keys(want)); !slices.Equal(names, cases["skipped"]) {
		t.Errorf("skipped are %q, and listed as such %q", cases["skipped"], names)
	}
}

// remounter returns a directory with a mount(8) that does not look for a helper program of our filesystem type.
func remounter(h *host) string {
	h.Helper()
	dir := h.TempDir()
	real, err := exec.LookPath("mount")
	h.must(err)
	h.must(os.WriteFile(dir+"/mount", []byte("#!/bin/sh\nexec "+real+" -i \"$@\"\n"), 0o755))
	return dir
}

// reasons reads a list of names, each with a reason.
func reasons(h *host, path string) map[string]string {
	h.Helper()
	text, err := os.ReadFile(path)
	h.must(err)
	list := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, why, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" || name[0] == '#' {
			continue
		}
		if why = strings.TrimSpace(why); why == "" {
			h.Errorf("%s: %s has no reason", path, name)
		}
		list[name] = why
	}
	return list
}
