package policy

func dataSection() Section {
	return Section{
		Header: "[data]",
		Text: "Which files may be written, after the symbolic links of the real machine at each start: a link that a command of the sandbox has made opens nothing. To hide files, there is hide in [sandbox]. A relative path starts at the directory of the profile, or with ~/ at the home directory. " +
			"A write elsewhere fails with EACCES, and to a read-only path with EROFS. The first refusal of each path is an event (snapfs.access.refused, with seccomp of Linux 5.19), and snapfs run lists it. " +
			"So each call that opens a file for writing, or creates, renames, removes or changes one, takes some tens of microseconds more, and one that reads takes no more. " +
			"A refusal of a 32-bit program, of a change by a descriptor (fchmod) or by a path through another process below /proc, or of a socket's name is no event. Programs inside cannot use seccomp to observe others.",
		Keys: []Key{
			{"writable", "list of paths", "", "The only files and directories, with everything below them, that may be written, besides /tmp, /dev and /run, below which the workspace may not lie. A path that does not exist when the sandbox starts is ignored. It requires Landlock (Linux 6.2)."},
			{"read-only", "list of paths", "", "Files and directories that may not be written, also if writable has them; with the names (hard links) that their files have in the workspace when the sandbox starts."},
		},
	}
}

// datum stores one key of the section [data] of a profile (which paths sandboxes may write) in r.sandbox: its
// name, and its value v. It records mistakes in v at path, the key's path in the file.
func (r *reader) datum(name, path string, v any) {
	list := r.pathsOf("data", name, path, v)
	if list == nil {
		list = []string{}
	}
	for _, p := range list {
		if p == "/" {
			r.wrong(path, name+": / is not allowed", "name directories below it")
		}
	}
	if name == "writable" {
		r.sandbox.Data.Writable = list
	} else {
		r.sandbox.Data.ReadOnly = list
	}
}
