package copier_test

import (
	"archive/tar"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/snapfs/snapfs/workflow/copier"
)

// A member is a file of an archive: a regular one, or by kind a directory or a link.
type member struct {
	name string
	kind byte
	link string
}

const dirKind, linkKind, hardKind = tar.TypeDir, tar.TypeSymlink, tar.TypeLink

// archive returns a tar archive as a hostile program in a sandbox may write it.
func archive(t *testing.T, members ...member) *bytes.Buffer {
	t.Helper()
	b := &bytes.Buffer{}
	w := tar.NewWriter(b)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Typeflag: m.kind, Linkname: m.link, Mode: 0o755}
		if m.kind == 0 {
			h.Typeflag, h.Size = tar.TypeReg, 4
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if m.kind == 0 {
			if _, err := w.Write([]byte("evil")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestArchiveStaysInItsPlace: whatever a sandbox sends in place of the file or directory that was asked for, nothing
// beside its copy changes.
func TestArchiveStaysInItsPlace(t *testing.T) {
	for what, members := range map[string][]member{
		"a file above":                {{name: "../../.bashrc"}},
		"a second file":               {{name: "out"}, {name: ".bashrc"}},
		"a second file above":         {{name: "out"}, {name: "../.bashrc"}},
		"a file below a file":         {{name: "x/.bashrc"}},
		"two dots":                    {{name: ".."}},
		"an absolute path":            {{name: "/.bashrc"}},
		"a hard link":                 {{name: "out", kind: hardKind, link: ".bashrc"}},
		"a link, and a file behind":   {{name: "out", kind: linkKind, link: "."}, {name: "out/.bashrc"}},
		"above a directory":           {{name: "out", kind: dirKind}, {name: "out/../../.bashrc"}},
		"beside a directory":          {{name: "out", kind: dirKind}, {name: ".bashrc"}},
		"a directory above":           {{name: "out", kind: dirKind}, {name: "out/../.git/hooks", kind: dirKind}},
		"a directory at two dots":     {{name: "..", kind: dirKind}, {name: "../.bashrc"}},
		"behind a link in it":         {{name: "out", kind: dirKind}, {name: "out/l", kind: linkKind, link: ".."}, {name: "out/l/.bashrc"}},
		"behind an absolute link":     {{name: "out", kind: dirKind}, {name: "out/l", kind: linkKind, link: "DIR"}, {name: "out/l/.bashrc"}},
		"a hard link out of it":       {{name: "out", kind: dirKind}, {name: "out/h", kind: hardKind, link: "../.bashrc"}},
		"a hard link behind a link":   {{name: "out", kind: dirKind}, {name: "out/l", kind: linkKind, link: ".."}, {name: "out/h", kind: hardKind, link: "out/l/.bashrc"}},
		"a directory behind a link":   {{name: "out", kind: dirKind}, {name: "out/l", kind: linkKind, link: "../.git"}, {name: "out/l/hooks", kind: dirKind}},
		"the place itself as a link":  {{name: "out", kind: linkKind, link: "."}, {name: "out", kind: dirKind}, {name: "out/.bashrc"}},
		"the directory, then a link":  {{name: "out", kind: dirKind}, {name: "out", kind: linkKind, link: ".."}, {name: "out/.bashrc"}},
		"the directory at a full dot": {{name: ".", kind: dirKind}, {name: "../.bashrc"}},
	} {
		t.Run(what, func(t *testing.T) {
			home := t.TempDir()
			if err := os.WriteFile(filepath.Join(home, ".bashrc"), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(home, ".git"), 0o700); err != nil {
				t.Fatal(err)
			}
			for i := range members {
				if members[i].link == "DIR" {
					members[i].link = home
				}
			}
			dir, err := os.OpenRoot(home)
			if err != nil {
				t.Fatal(err)
			}
			defer dir.Close()
			if err := copier.Unpacked(archive(t, members...), dir, "out", &copier.Copied{}); err == nil {
				t.Error("the archive is accepted")
			}
			beside(t, home)
		})
	}
}

// beside fails the test if anything in home but out differs from what the test has made.
func beside(t *testing.T, home string) {
	t.Helper()
	seen := map[string]bool{".": true, ".bashrc": true, ".git": true}
	err := filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(home, path)
		if rel == "out" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !seen[rel] {
			t.Errorf("%s is new", rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(filepath.Join(home, ".bashrc"))
	if err != nil || st.Size() != 4 || st.Mode().Perm() != 0o600 {
		t.Errorf(".bashrc: %v, %v", st, err)
	}
	if text, err := os.ReadFile(filepath.Join(home, ".bashrc")); err != nil || string(text) != "mine" {
		t.Errorf(".bashrc: %q, %v", text, err)
	}
}

// TestArchiveOfTheTop: a sandbox's whole root has the name "." in the archive.
func TestArchiveOfTheTop(t *testing.T) {
	home := t.TempDir()
	dir, err := os.OpenRoot(home)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	c := &copier.Copied{}
	err = copier.Unpacked(archive(t, member{name: "./", kind: dirKind}, member{name: "./etc/", kind: dirKind}, member{name: "./etc/f"}), dir, "out", c)
	if err != nil || c.Files != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	if text, err := os.ReadFile(filepath.Join(home, "out/etc/f")); err != nil || string(text) != "evil" {
		t.Errorf("%q, %v", text, err)
	}
}
