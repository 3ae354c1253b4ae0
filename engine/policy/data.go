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
		Text: "Which files may be read and written, which reads are recorded, and of which files the content may not leave the sandbox. Paths are meant after the symbolic links of the real machine at each start: a link that a command of the sandbox has made opens nothing. To hide files, there is hide in [sandbox]. A relative path starts at the directory of the profile, or with ~/ at the home directory. " +
			"An entry with *, ? or [ is a pattern as in .gitignore: without a slash it matches at any depth, and ** stands for any number of directories. A backslash before such a character makes it an ordinary one. At each start snapfs looks on the real machine for what a pattern matches, behind no symbolic link to a directory. A file that is made later, or that only the sandbox has, is not found: so it may not be read or written, but it is not read-only. With more than 1,000 paths of one key, or more than 200,000 files and directories to look through in 10 seconds, the sandbox does not start. " +
			"A read or an execution elsewhere than in readable fails with EACCES, a write elsewhere than to writable too, and one to a read-only path with EROFS. The first refusal of each path is an event (snapfs.access.refused, with seccomp of Linux 5.19), and snapfs run lists it. " +
			"So each call that opens a file for writing, or creates, renames, removes or changes one, takes some tens of microseconds more; with readable or recorded also each that opens a file for reading or executes one. " +
			"A refusal of a 32-bit program, of a change by a descriptor (fchmod) or by a path through another process below /proc, or of a socket's name is no event. Programs inside cannot use seccomp to observe others. " +
			"A label, secret or private, keeps the content of files in the sandbox, whose programs read them as always. A promotion refuses a changed file that has such content, but for one that has the label itself. " +
			"The network proxy answers a request that has it with the status 403 and the reason, which is an event (snapfs.network.refused). " +
			"Recognised are 63 bytes of a file that follow one another, a whole short file, its lines, and values as of KEY=VALUE: as they are, in base64, in hexadecimal, with escapes of JSON or of a URL, or compressed with gzip, zlib or zip. " +
			"Other encodings and encryption are not; snapfs profile check says what is not held. " +
			"With a label the proxy reads every request, on TLS with the sandbox's own CA. It sends one when it has searched all of it, up to 32 MiB, so that both sides cannot stream at once. It refuses what it cannot search: a rule with +tcp, datagrams, an address without a name, a Content-Encoding other than gzip and deflate. The network host is refused at the start. " +
			"Labelled files are read when the sandbox is made, at each start and before a promotion: up to 16 MiB in 10,000 files. With more, or with a file that has too little content to be recognised, the sandbox does not start; hide in [sandbox] keeps such a file out of it.",
		Keys: []Key{
			{"readable", "list of paths", "", "The only files and directories, with everything below them, whose content may be read, and that may be listed and executed, besides what is writable and /usr, /bin, /sbin, /lib*, /etc, /nix/store, /gnu/store, /proc, /sys, /dev, /run and /tmp, below which the workspace may not lie unless it is readable as a whole. A program of [tools] elsewhere must be readable too. Names, attributes and the targets of symbolic links stay visible to those who know the path. Without writable, only what is readable may be written: otherwise a command could put another file in its place. Many programs read settings in the home directory: git stops if it may not read an existing ~/.gitconfig. A path that does not exist when the sandbox starts is ignored, and a readable file that is replaced, as most editors do, is readable only if its directory is. It requires Landlock (Linux 6.2)."},
			{"writable", "list of paths", "", "The only files and directories, with everything below them, that may be written, besides /tmp, /dev and /run, below which the workspace may not lie. A path that does not exist when the sandbox starts is ignored. It requires Landlock (Linux 6.2)."},
			{"recorded", "list of paths", "", "Files, and directories with everything below them, of which the first read by any program since the sandbox started is an event (snapfs.file.read), with the path and the program, before the read goes on. It is in the sandbox's evidence; later reads of the file are not. An execution is a read, and a file that a command renames or links is the same file. A read whose event cannot be written fails with EIO, and so does the first read of a file after 10,000 others of one start, or a rename or link of such files after 1,000. 32-bit programs and chroot(2), which the record would miss, fail. The record is of programs that do not set out to avoid it: one whose threads change a path while the call waits, or that reads by the path of another process below /proc, reads without an event; hide keeps the file from it. It requires seccomp (Linux 5.19), without which the sandbox does not start."},
			{"read-only", "list of paths", "", "Files and directories that may not be written, also if writable has them; with the names (hard links) that their files have in the workspace when the sandbox starts."},
			{"secret", "list of paths", "", "A label: files, directories with everything below them, or patterns as in .gitignore, such as config/*.env, whose content no result and no request of the sandbox may have. Programs inside may read them; hide in [sandbox] is for files that nobody needs there."},
			{"private", "list of paths", "", "The same label for data such as data/customers/**, whose content a person may let into a result, with --allow-private. No request may have it either way."},
		},
	}
}

// datum stores one key of the section [data] of a profile in r.sandbox: the key called name, with the value v. The
// section says which paths sandboxes may read and write, and which are labelled. datum records mistakes in v at path, the
// key's path in the file.
func (r *reader) datum(name, path string, v any) {
	list := r.pathsOf("data", name, path, v, joinPattern)
	if list == nil {
		list = []string{}
	}
	for _, p := range list {
		if p == "/" {
			r.wrong(path, name+": / is not allowed", "name directories below it")
		}
	}
	d := &r.sandbox.Data
	*map[string]*[]string{
		"readable": &d.Readable, "writable": &d.Writable, "read-only": &d.ReadOnly, "recorded": &d.Recorded, "secret": &d.Secret, "private": &d.Private,
	}[name] = list
	r.patterns(name, path, list)
}

// joinPattern joins a directory and a relative pattern of [pathlist.Match]. As in .gitignore, a pattern without a slash
// matches at any depth.
func joinPattern(dir, pattern string) string {
	dir = pathlist.Escape(dir)
	if pathlist.IsPattern(pattern) && !strings.Contains(pattern, "/") {
		return filepath.Join(dir, "**", pattern)
	}
	return filepath.Join(dir, pattern)
}

// patterns records a mistake at path for each pattern of list, the value of the key called name, that would have snapfs
// look through every directory of the host, and for each that is none.
func (r *reader) patterns(name, path string, list []string) {
	for _, p := range list {
		if p != "/" && pathlist.Fixed(p) == "/" {
			r.wrong(path, fmt.Sprintf("%s: %q begins with a wildcard, which is every directory of this machine", name, p), "begin with a directory")
		}
		for element := range strings.SplitSeq(p, "/") {
			if _, err := filepath.Match(element, ""); err != nil {
				r.wrong(path, fmt.Sprintf("%s: %q is no pattern", name, p), "put a backslash before a [ that is meant as it is")
			}
		}
	}
}
