package catalog

// Data says which paths the processes of a sandbox may read and write, which reads are recorded, and of which files the
// content may not leave it. Every entry is an absolute path, or an absolute pattern as in .gitignore.
type Data struct {
	// Readable lists the only files and directories, with everything below them, that may be read, listed and
	// executed, besides what is writable and the directories of the system; nil means all, and an empty list none.
	Readable []string `json:"readable,omitzero"`
	// Writable lists the only files and directories, with everything below them, that may be
	// written, besides /tmp, /dev and /run; nil means those of Readable, and an empty list none.
	Writable []string `json:"writable,omitzero"`
	// ReadOnly lists files and directories that may not be written, also if Writable has them.
	ReadOnly []string `json:"read_only,omitempty"`
	// Recorded lists files of which the first read is an event and in the sandbox's evidence.
	Recorded []string `json:"recorded,omitempty"`
	// Secret and Private are labels: paths, or patterns as in .gitignore, of files whose content may not leave
	// the sandbox. What is secret never may; a person may allow a result with private content.
	Secret  []string `json:"secret,omitempty"`
	Private []string `json:"private,omitempty"`
}

// MayWrite returns the list of the only paths that may be written: Writable, or without it Readable, because a process
// that can write the directory of a readable path can put another file there. nil means all paths.
func (d *Data) MayWrite() []string {
	if d.Writable == nil {
		return d.Readable
	}
	return d.Writable
}

// Labelled reports whether a label names files whose content may not leave the sandbox. d may be nil.
func (d *Data) Labelled() bool { return d != nil && len(d.Secret)+len(d.Private) > 0 }
