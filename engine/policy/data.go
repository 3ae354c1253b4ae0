package policy

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine/pathlist"
)

func dataSection() Section {
	return Section{
		Header: "[data]",
		Text: "Which files may be written, and of which files the content may not leave the sandbox. Paths are meant after the symbolic links of the real machine at each start: a link that a command of the sandbox has made opens nothing. To hide files, there is hide in [sandbox]. A relative path starts at the directory of the profile, or with ~/ at the home directory. " +
			"A write elsewhere than to writable fails with EACCES, and to a read-only path with EROFS. The first refusal of each path is an event (snapfs.access.refused, with seccomp of Linux 5.19), and snapfs run lists it. " +
			"So each call that opens a file for writing, or creates, renames, removes or changes one, takes some tens of microseconds more, and one that reads takes no more. " +
			"A refusal of a 32-bit program, of a change by a descriptor (fchmod) or by a path through another process below /proc, or of a socket's name is no event. Programs inside cannot use seccomp to observe others. " +
			"A label, secret or private, keeps the content of files in the sandbox, whose programs read them as always. A promotion refuses a changed file that has such content, but for one that has the label itself. " +
			"The network proxy answers a request that has it with the status 403 and the reason, which is an event (snapfs.network.refused). " +
			"Recognised are 63 bytes of a file that follow one another, a whole short file, its lines, and values as of KEY=VALUE: as they are, in base64, in hexadecimal, with escapes of JSON or of a URL, or compressed with gzip, zlib or zip. " +
			"Other encodings and encryption are not; snapfs profile check says what is not held. " +
			"With a label the proxy reads every request, on TLS with the sandbox's own CA. It sends one when it has searched all of it, up to 32 MiB, so that both sides cannot stream at once. It refuses what it cannot search: a rule with +tcp, datagrams, an address without a name, a Content-Encoding other than gzip and deflate. The network host is refused at the start. " +
			"Labelled files are read when the sandbox is made, at each start and before a promotion: up to 16 MiB in 10,000 files. With more, or with a file that has too little content to be recognised, the sandbox does not start; hide in [sandbox] keeps such a file out of it.",
		Keys: []Key{
			{"writable", "list of paths", "", "The only files and directories, with everything below them, that may be written, besides /tmp, /dev and /run, below which the workspace may not lie. A path that does not exist when the sandbox starts is ignored. It requires Landlock (Linux 6.2)."},
			{"read-only", "list of paths", "", "Files and directories that may not be written, also if writable has them; with the names (hard links) that their files have in the workspace when the sandbox starts."},
			{"secret", "list of paths", "", "A label: files, directories with everything below them, or patterns as in .gitignore, such as config/*.env, whose content no result and no request of the sandbox may have. Programs inside may read them; hide in [sandbox] is for files that nobody needs there."},
			{"private", "list of paths", "", "The same label for data such as data/customers/**, whose content a person may let into a result, with --allow-private. No request may have it either way."},
		},
	}
}

// datum stores one key of the section [data] of a profile in r.sandbox: the key called name, with the value v. The
// section says which paths sandboxes may write, and which are labelled. datum records mistakes in v at path, the
// key's path in the file.
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
	d := &r.sandbox.Data
	*map[string]*[]string{"writable": &d.Writable, "read-only": &d.ReadOnly, "secret": &d.Secret, "private": &d.Private}[name] = list
	if name == "secret" || name == "private" {
		r.labels(name, path, list)
	}
}

// labels records a mistake at path for each pattern of list, the value of the label called name, that would have snapfs
// look through every directory of the host, and for each that is none.
func (r *reader) labels(name, path string, list []string) {
	for _, p := range list {
		if pathlist.Fixed(p) == "/" {
			r.wrong(path, fmt.Sprintf("%s: %q begins with a wildcard, which is every directory of this machine", name, p), "begin with a directory")
		}
		for element := range strings.SplitSeq(p, "/") {
			if _, err := filepath.Match(element, ""); err != nil {
				r.wrong(path, fmt.Sprintf("%s: %q is no pattern", name, p), "put a backslash before a [ that is meant as it is")
			}
		}
	}
}
