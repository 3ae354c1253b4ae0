package policy

import (
	"fmt"
	"path/filepath"
	"slices"
)

func resultSection() Section {
	return Section{
		Header: "[result]",
		Text: "What a promotion takes of the sandbox's changes where nobody names paths, for a command that runs code of strangers, such as an installation. " +
			"The rest is named and stays in the sandbox; a path that a person names with snapfs apply or with --only is promoted all the same. " +
			"snapfs run then reports at its end which hidden files the command looked for, and which programs it was refused. " +
			"This observes each system call that opens or looks up a file or executes a program (Linux 5.19), which takes some tens of microseconds more, and no program inside can observe others by the same means.",
		Keys: []Key{
			{"only", "list of paths", "every change in the workspace", "The only paths that a promotion takes, with everything below them: relative to the workspace, or patterns, such as \"*.lock\"."},
		},
	}
}

// outcome stores the key name of the section [result], the patterns of paths that a promotion takes from the
// sandbox, with the value v in r.sandbox, or records mistakes.
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
