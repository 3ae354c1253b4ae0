//go:build linux

package isolate

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/treetest"
	"github.com/snapfs/snapfs/isolate/landlock"
)

// digestOf returns the rule that a program must keep the content that it has on the host.
func digestOf(t *testing.T, path string) Digest {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	return Digest{Path: path, SHA256: hex.EncodeToString(sum[:])}
}

// withTool returns a copy of spec whose /home is a directory with a copy of cat called tool, and the paths of the tool
// in the container and on the host.
func withTool(t *testing.T, spec Spec) (with Spec, inside, host string) {
	t.Helper()
	dir := scratch(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile("/usr/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	host = filepath.Join(dir, "tool")
	if err := os.WriteFile(host, content, 0o755); err != nil {
		t.Fatal(err)
	}
	mounted := []Mount{}
	for _, m := range spec.Mounts {
		if m.Target != "/home" {
			mounted = append(mounted, m)
		}
	}
	spec.Mounts = append(mounted, Mount{Target: "/home", Source: dir})
	return spec, "/home/tool", host
}

// A program that is allowed by its digest cannot be changed, replaced or moved by a process inside, and runs.
func TestProgramsWithADigestKeepTheirContent(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		if landlock.ABI() < landlock.ExecuteABI {
			treetest.Skip(t, "Landlock ABI 2", "the kernel is older")
		}
		for _, overlaid := range []bool{true, false} {
			spec, tool := renewed(t, spec), "/usr/bin/cat"
			if !overlaid { // a directory in which a write changes the inode itself
				spec, tool, _ = withTool(t, spec)
			}
			spec.Execute = []string{afterLinks(t, "/usr/bin/sh"), "/usr/bin/cp", "/usr/bin/mv", "/usr/bin/rm", "/usr/bin/ln", "/usr/bin/dd", tool}
			spec.Digests = []Digest{digestOf(t, "/usr/bin/cat")}
			spec.Digests[0].Path = tool
			container := open(t, spec)
			if got := sh(t, container, tool+" /etc/hostname >/dev/null && echo ran"); got != "ran" {
				t.Fatalf("%s: %q", tool, got)
			}
			for _, script := range []string{
				"echo x >> " + tool, "cp /usr/bin/id " + tool, "cp /usr/bin/id /tmp/id; mv /tmp/id " + tool, "rm -f " + tool, "mv " + tool + " " + tool + "2",
				"ln -f /usr/bin/id " + tool, "ln " + tool + " " + tool + "2", "dd if=/usr/bin/id of=" + tool + " conv=notrunc", ": > " + tool,
				"cd " + filepath.Dir(tool) + " && echo x >> ../." + tool, "echo x >> /proc/self/root" + tool,
			} {
				if got := ran(t, container, script); got == "0" {
					t.Errorf("%s: it was done", script)
				}
				if got := sh(t, container, tool+" /etc/hostname >/dev/null && echo ran"); got != "ran" {
					t.Errorf("%s: then %s: %q", script, tool, got)
				}
			}
		}
	})
}

// A container does not start if a program has another content, is missing, or has a name by which it could be changed.
func TestAnotherContentIsRefusedAtTheStart(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		if landlock.ABI() < landlock.ExecuteABI {
			treetest.Skip(t, "Landlock ABI 2", "the kernel is older")
		}
		spec, tool, host := withTool(t, renewed(t, spec))
		right := digestOf(t, host)
		wrong := Digest{Path: tool, SHA256: strings.Repeat("0", 64)}
		right.Path = tool
		linked := host + "2"
		for _, c := range []struct {
			name    string
			digests []Digest
			link    bool
			want    error
			text    string
		}{
			{"the right digest", []Digest{right}, false, nil, ""},
			{"one of two digests", []Digest{wrong, right}, false, nil, ""},
			{"the wrong digest", []Digest{wrong}, false, ErrDigest, "it has sha256:" + right.SHA256},
			{"no program", []Digest{{Path: "/home/absent", SHA256: right.SHA256}}, false, errs.ErrNotFound, "/home/absent"},
			{"a directory", []Digest{{Path: "/home", SHA256: right.SHA256}}, false, errs.ErrInvalid, "no regular file"},
			{"another name", []Digest{right}, true, errs.ErrDenied, "2 names"},
			{"both names", []Digest{right, {Path: tool + "2", SHA256: right.SHA256}}, true, nil, ""},
		} {
			if c.link {
				if err := os.Link(host, linked); err != nil && !errors.Is(err, os.ErrExist) {
					t.Fatal(err)
				}
			}
			spec := renewed(t, spec)
			spec.Execute, spec.Digests = []string{afterLinks(t, "/usr/bin/sh"), tool}, c.digests
			container, _, err := Start(t.Context(), spec, nil)
			if err == nil {
				if c.link {
					if got := ran(t, container, "echo x >> "+tool+"2"); got == "0" {
						t.Error("a program was changed by its other name")
					}
				}
				err = container.Close(t.Context())
			}
			if !errors.Is(err, c.want) || c.text != "" && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	})
}

// A command of a prepared container would run before the programs are compared.
func TestDigestsAreComparedBeforeACommandRuns(t *testing.T) {
	asBoth(t, func(t *testing.T, spec Spec) {
		spec.Digests = []Digest{digestOf(t, "/usr/bin/cat")}
		command := shell("true")
		_, _, err := Start(t.Context(), spec, &command)
		if !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%v", err)
		}
	})
}
