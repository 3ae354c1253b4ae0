//go:build linux

package snapshottest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine/snapshot"
	"github.com/snapfs/snapfs/errs"
)

func removing() []promise {
	return []promise{
		{name: "removing is final and may be repeated", test: removesOnce},
		{name: "forks outlive the snapshots they came from", test: forksOutlive},
		{name: "a directory without the ownership mark is never removed", test: sparesLookAlikes},
		{name: "removing follows no symbolic link out of the data", test: staysInside},
	}
}

func removesOnce(x *workbench) {
	x.write("file", "first")
	x.capture("s1")
	x.fork("s1", "f1")
	for range 3 {
		x.must(x.b.RemoveFork(x.Context(), "f1"))
		x.must(x.b.Remove(x.Context(), "s1"))
		_, err := x.b.Lookup(x.Context(), "s1")
		x.fails(err, errs.ErrNotFound, "looking up a removed snapshot")
		_, err = x.b.LookupFork(x.Context(), "f1")
		x.fails(err, errs.ErrNotFound, "looking up a removed fork")
		x.lists(nil, nil)
	}
	x.write("file", "second")
	x.capture("s1") // the id is free again
	x.has(x.fork("s1", "f1").View, "file", "second", "a fork with an id used before")
	x.clean()
}

func forksOutlive(x *workbench) {
	x.write("file", "base")
	x.write("kept", "base")
	x.capture("s1")
	x.fork("s1", "f1")
	x.in(x.view("f1"), func(dir string) { x.put(dir, "file", "fork") })
	x.seal("f1", "s2", snapshot.Idle)
	x.fork("s2", "f2")
	x.must(x.b.Remove(x.Context(), "s1"))
	x.must(x.b.Remove(x.Context(), "s2"))
	x.must(x.b.Sweep(x.Context()))
	x.reopen()
	for _, id := range []snapshot.ForkID{"f1", "f2"} {
		x.has(x.view(id), "file", "fork", string(id))
		x.has(x.view(id), "kept", "base", string(id))
	}
	x.seal("f1", "s3", snapshot.Idle)
	x.has(x.snap("s3"), "kept", "base", "sealed after its base was removed")
	x.clean()
}

// data returns the directories in which the backend under test stores its data, to search them for what a
// removal has left.
func (x *workbench) data() []string {
	if x.subject.Data != nil {
		return x.subject.Data(x.place)
	}
	return []string{x.place.Dir}
}

// named returns the files and directories, at most four levels deep, in the data of the backend under test
// whose names contain id, the id of a snapshot or fork. It does not descend into them.
func (x *workbench) named(id string) []string {
	var found []string
	for _, root := range x.data() {
		x.must(filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
			switch {
			case errors.Is(err, os.ErrNotExist):
				return nil
			case err != nil:
				return err
			case strings.Contains(e.Name(), id):
				found = append(found, path)
			case strings.Count(path, "/") < strings.Count(root, "/")+4:
				return nil
			}
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}))
	}
	if len(found) == 0 {
		x.Fatalf("nothing in %v has %s in its name", x.data(), id)
	}
	return found
}

func sparesLookAlikes(x *workbench) {
	x.write("file", "base")
	x.capture("genuine")
	x.fork("genuine", "genuine")
	var precious []string
	for _, path := range x.named("genuine") {
		fake := filepath.Join(filepath.Dir(path), strings.ReplaceAll(filepath.Base(path), "genuine", "likeness"))
		if info, err := os.Lstat(path); err != nil || !info.IsDir() {
			continue
		}
		x.put(fake, "tree/precious", "yours")
		precious = append(precious, filepath.Join(fake, "tree/precious"))
	}
	x.removesNot("likeness")
	for _, path := range precious {
		if text, err := os.ReadFile(path); err != nil || string(text) != "yours" {
			x.Errorf("%s: %q, %v", path, text, err)
		}
		x.must(os.RemoveAll(filepath.Dir(filepath.Dir(path))))
	}
	x.clean()
}

func staysInside(x *workbench) {
	x.write("file", "base")
	x.capture("genuine")
	x.fork("genuine", "genuine")
	var links []string
	for _, path := range x.named("genuine") {
		link := filepath.Join(filepath.Dir(path), strings.ReplaceAll(filepath.Base(path), "genuine", "symlink"))
		x.must(os.Symlink(path, link))
		links = append(links, link)
	}
	x.removesNot("symlink")
	x.has(x.snap("genuine"), "file", "base", "the snapshot that a symbolic link points to")
	x.has(x.view("genuine"), "file", "base", "the fork that a symbolic link points to")
	for _, link := range links {
		x.must(os.RemoveAll(link))
	}
	x.clean()
}

// removesNot checks that the backend neither returns, lists nor deletes an object that is not its own,
// although the object has the name of id. The results of Remove and RemoveFork do not matter.
func (x *workbench) removesNot(id string) {
	x.Helper()
	if _, err := x.b.Lookup(x.Context(), snapshot.ID(id)); err == nil {
		x.Errorf("Lookup returns %s", id)
	}
	if _, err := x.b.LookupFork(x.Context(), snapshot.ForkID(id)); err == nil {
		x.Errorf("LookupFork returns %s", id)
	}
	x.lists([]snapshot.ID{"genuine"}, []snapshot.ForkID{"genuine"})
	_ = x.b.Remove(x.Context(), snapshot.ID(id))
	_ = x.b.RemoveFork(x.Context(), snapshot.ForkID(id))
	x.must(x.b.Sweep(x.Context()))
}
