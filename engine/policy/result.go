package policy

import (
	"fmt"
	"path/filepath"
	"slices"
)

func resultSection() Section {
	return Section{
		Header: "[result]",
		Text: "Which changes a promotion takes if no path is named, for a command that runs code of others, such as an installation. " +
			"snapfs lists the other changed paths and leaves them in the sandbox, which is no event; snapfs apply NAME PATH or --only promotes one. " +
			"snapfs run also lists the hidden files that the command tried to open and the programs that it was refused. " +
			"That needs seccomp (Linux 5.19), and makes each lookup of a file and each execution of a program some tens of microseconds slower; programs inside cannot use seccomp to observe others.",
		Keys: []Key{
			{"only", "list of paths", "every change in the workspace", "The paths that a promotion takes, with everything below them: relative to the workspace, or patterns as in .gitignore, such as *.lock or **/node_modules."},
		},
	}
}

// outcome stores the value v of the key name of the section [result], the patterns of paths that a promotion takes
// from the sandbox, in r.sandbox. It records mistakes in v at path, the key's path in the file.
func (r *reader) outcome(name, path string, v any) {
	list := []string{}
	r.texts(name, path, v, func(text, path string) {
		if _, err := filepath.Match(text, "x"); err != nil {
			r.wrong(path, fmt.Sprintf("only: %q: %v", text, err), "write a path, or a pattern such as *.lock")
			return
		}
		if filepath.IsAbs(text) || !filepath.IsLocal(text) {
			r.wrong(path, fmt.Sprintf("only: %q is not in the workspace", text), "write a path relative to the workspace")
			return
		}
		if text = filepath.Clean(text); !slices.Contains(list, text) {
			list = append(list, text)
			r.said("result."+name, text, path)
		}
	})
	if items, ok := v.([]any); ok && len(items) == 0 {
		r.wrong(path, "only: the list is empty", "name at least one path, or leave the line out")
	}
	r.sandbox.Result = list
}
