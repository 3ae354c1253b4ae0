package hostfs

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/datafiles"
	"github.com/snapfs/snapfs/engine/guarded"
	"github.com/snapfs/snapfs/internal/dpkg"
	"github.com/snapfs/snapfs/isolate"
)

// onHost returns paths, which a sandbox with the directory workspace may write or execute, after all symbolic links of
// the host; nil for nil. The container then follows no link in them, so that no link of the sandbox's own leads
// elsewhere. Of a path that does not exist, onHost follows the links above its first missing element. It leaves paths
// in the sandbox's own directories, such as /tmp, as they are: the host's links there are not the sandbox's.
func onHost(paths []string, workspace string) []string {
	if paths == nil {
		return nil
	}
	list, dirs := make([]string, 0, len(paths)), map[string]string{} // a package has many programs in few directories
	for _, p := range paths {
		if !underReplaced(p) || Within(p, workspace) {
			p = datafiles.AfterLinks(p, dirs)
		}
		list = append(list, p)
	}
	return list
}

// limitPrograms adds to the container spec s which programs the rules of tools, which may be nil, allow and deny in a
// sandbox with the directory workspace. It follows the symbolic links of the host, and keeps the link in what is
// denied. notes are sentences for the user about rules that apply to no program. The programs of packages come from cache
// if they can. Errors: those of [dpkg.Programs], [guarded.Rules] and [guarded.Programs].
func limitPrograms(s *isolate.Spec, tools *catalog.Tools, workspace string, cache dpkg.Cache) (notes []string, err error) {
	if tools == nil {
		return nil, nil
	}
	dirs := sync.OnceValue(guarded.ProgramDirs)
	denied, real, notes, err := programs("deny", tools.Deny, cache.EveryProgram, dirs)
	if err != nil {
		return nil, err
	}
	if tools.Deny != nil {
		s.NoExec = newLookupCache().followed(denied)
		for _, path := range real {
			if !slices.Contains(s.NoExec, path) {
				s.NoExec = append(s.NoExec, path)
			}
		}
	}
	for _, rule := range tools.Allow {
		if path, digest, ok := catalog.CutDigest(rule); ok {
			s.Digests = append(s.Digests, isolate.Digest{Path: onHost([]string{path}, workspace)[0], SHA256: digest})
		}
	}
	plain := slices.DeleteFunc(slices.Clone(tools.Allow), func(rule string) bool { _, _, ok := catalog.CutArguments(rule); return ok })
	allowed, real, more, err := programs("allow", plain, cache.Programs, dirs)
	if err != nil || tools.Allow == nil {
		return append(notes, more...), err
	}
	s.Execute = append(onHost(allowed, workspace), real...)
	rules, missing, err := guarded.Rules(tools, guarded.OnHost, guarded.ProgramDirs)
	if err == nil {
		s.Execute = append(s.Execute, guarded.Also(rules)...)
		s.Guarded, err = guarded.Programs(rules, s.Execute, s.NoExec)
	}
	return slices.Concat(notes, more, missing), err
}

// programs returns the paths of the programs that rules of catalog.Tools allow or deny. A rule that is only a name
// becomes a path in each usual directory of programs. real are the programs of packages, whose paths have no symbolic
// links. list is the name of the rules' list, for notes, which are those of limitPrograms. find
// returns the programs of a package, as [dpkg.Programs] does, and dirs is [guarded.ProgramDirs].
func programs(list string, rules []string, find func(pkg string) ([]string, bool, error), dirs func() []string) (paths, real, notes []string, err error) {
	paths = []string{}
	seen := map[string]bool{}
	add := func(to *[]string, path string) {
		if !seen[path] {
			seen[path] = true
			*to = append(*to, path)
		}
	}
	for _, rule := range rules {
		if pkg, ok := catalog.PackageOf(rule); ok {
			all, installed, err := find(pkg)
			if err != nil {
				return nil, nil, nil, err
			}
			if !installed {
				notes = append(notes, "tools "+list+" "+rule+": no package of this name is installed, so the rule applies to no program")
			}
			for _, path := range all {
				add(&real, path)
			}
			continue
		}
		rule, _, _ = catalog.CutDigest(rule)
		if strings.Contains(rule, "/") {
			add(&paths, strings.TrimSuffix(rule, "/*"))
			continue
		}
		for _, dir := range dirs() {
			add(&paths, filepath.Join(dir, rule))
		}
	}
	return paths, real, notes, nil
}
