package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/guarded"
	"github.com/snapfs/snapfs/engine/pathlist"
)

// unreadable returns the sentences of [Sandbox.NotHeld] about the rules of tools.allow whose programs a sandbox cannot
// execute, because data.readable lacks them: one sentence for each rule. always are the directories that every sandbox may
// read.
func (s *Sandbox) unreadable(always []string) (list []string) {
	if s.Data.Readable == nil {
		return nil
	}
	for _, rule := range s.Tools.Allow {
		outside := slices.DeleteFunc(guarded.OnHost(allowedPaths(rule)), func(path string) bool {
			return s.mayRead(path) || slices.ContainsFunc(always, func(dir string) bool { return pathlist.Within(path, dir) })
		})
		if len(outside) == 0 {
			continue
		}
		which := outside[0]
		if more := len(outside) - 1; more > 0 {
			which += fmt.Sprintf(" and %d more", more)
		}
		list = append(list, "tools.allow "+rule+": "+which+" cannot be executed, because data.readable lacks it; add it to data.readable")
	}
	return list
}

// allowedPaths returns the paths that rule, one of tools.allow, allows to execute on this host: programs, or one
// directory.
func allowedPaths(rule string) (paths []string) {
	if pkg, ok := catalog.PackageOf(rule); ok {
		paths, _ = packagePrograms(pkg)
		return paths
	}
	rule, _, _ = catalog.CutDigest(rule)
	rule, _, _ = catalog.CutArguments(rule)
	if strings.Contains(rule, "/") {
		return []string{strings.TrimSuffix(rule, "/*")}
	}
	for _, dir := range guarded.ProgramDirs() {
		paths = append(paths, filepath.Join(dir, rule))
	}
	return paths
}

// mayRead reports whether data.readable or data.writable lets a sandbox read path, which is one after symbolic links.
func (s *Sandbox) mayRead(path string) bool {
	return slices.ContainsFunc(slices.Concat(s.Data.Readable, s.Data.Writable), func(pattern string) bool {
		top := pathlist.Fixed(pattern)
		real := guarded.OnHost([]string{top})[0]
		return pathlist.Within(path, real) && pathlist.Match("/", pattern, filepath.Join(top, path[len(real):]))
	})
}
