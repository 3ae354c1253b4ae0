package hostfs

import (
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/dpkg"
	"github.com/snapfs/snapfs/isolate"
)

// limitPrograms adds to the container spec s which programs the rules of tools, which may be nil, allow and deny.
// notes are sentences for the user about rules that apply to no program. Errors: those of [dpkg.Programs].
func limitPrograms(s *isolate.Spec, tools *catalog.Tools) (notes []string, err error) {
	if tools == nil {
		return nil, nil
	}
	if s.NoExec, notes, err = programs("deny", tools.Deny); err != nil {
		return nil, err
	}
	for _, rule := range tools.Allow {
		if path, digest, ok := catalog.CutDigest(rule); ok {
			s.Digests = append(s.Digests, isolate.Digest{Path: path, SHA256: digest})
		}
	}
	var more []string
	s.Execute, more, err = programs("allow", tools.Allow)
	return append(notes, more...), err
}

// programs returns the paths of the programs that rules of catalog.Tools allow or deny; nil for nil. A rule
// that is only a name becomes a path in each usual directory of programs, and one about a package the paths of its
// programs. list is the name of the rules' list, for notes, which are those of limitPrograms.
func programs(list string, rules []string) (paths, notes []string, err error) {
	if rules == nil {
		return nil, nil, nil
	}
	paths, seen := []string{}, map[string]bool{}
	add := func(path string) {
		if !seen[path] {
			seen[path] = true
			paths = append(paths, path)
		}
	}
	for _, rule := range rules {
		if pkg, ok := catalog.PackageOf(rule); ok {
			all, installed, err := dpkg.Programs(pkg)
			if err != nil {
				return nil, nil, err
			}
			if !installed {
				notes = append(notes, "tools "+list+" "+rule+": no package of this name is installed, so the rule applies to no program")
			}
			for _, path := range all {
				add(path)
			}
			continue
		}
		rule, _, _ = catalog.CutDigest(rule)
		if strings.Contains(rule, "/") {
			add(strings.TrimSuffix(rule, "/*"))
			continue
		}
		for _, dir := range catalog.ProgramDirs {
			if real, err := filepath.EvalSymlinks(dir); err == nil { // /bin is /usr/bin on most machines
				add(filepath.Join(real, rule))
			}
		}
	}
	return paths, notes, nil
}
