package hostfs

import (
	"bytes"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/snapfs/snapfs/engine/hostfs/places"
	"github.com/snapfs/snapfs/internal/vfs"
	"github.com/snapfs/snapfs/isolate"
)

// redactedFiles is how many of [places.HashFiles], from the first on, a sandbox sees without the hashes. It sees the
// others empty.
const redactedFiles = 2

// hasHashes reports whether the file of the host at path has hashes of passwords, so that root's sandboxes see it empty
// or redacted unless the policy exposes it.
func hasHashes(path string) bool { return slices.Contains(places.HashFiles, path) }

// Redacted reports whether path is hidden from a sandbox of root by a copy without the hashes of passwords, so that
// reading it inside is no failed attempt.
func Redacted(path string) bool { return slices.Contains(places.HashFiles[:redactedFiles], path) }

// ExposeFlag returns the value of the flag --expose that makes the hidden path place useful in a sandbox. That is place
// itself, but [places.ShadowFile] for a file with hashes of passwords.
func ExposeFlag(place string) string {
	if hasHashes(place) {
		return places.ShadowFile
	}
	return place
}

// exposed returns expose, the paths that a policy exposes. If [places.ShadowFile] is among them, or below one of them,
// it adds the other files with hashes of passwords.
func exposed(expose []string) []string {
	if slices.ContainsFunc(expose, func(x string) bool { return Within(places.ShadowFile, x) }) {
		return slices.Concat(expose, places.HashFiles)
	}
	return expose
}

// maxRedacted is the size in bytes up to which a file with hashes is shown redacted, about 10,000 accounts. Of a larger
// one a sandbox sees an empty file.
const maxRedacted = 1 << 20

// redacted returns the files, among the paths hide to mask, that a sandbox sees without hashes in place of empty ones.
// asked are the paths that the policy hides by itself, which are to be empty. It reads the host's own files, never a
// sandbox's copy, in which a symbolic link may lead to another file of the host. A file that is missing or unreadable
// stays masked with an empty one.
func redacted(hide, asked []string) (list []isolate.Redacted) {
	if !Privileged() {
		return nil
	}
	for _, path := range places.HashFiles[:redactedFiles] {
		if !slices.Contains(hide, path) || slices.Contains(asked, path) {
			continue
		}
		text, st, err := vfs.ReadSmallAt(unix.AT_FDCWD, path, unix.O_NONBLOCK|unix.O_NOCTTY)
		if err == nil && len(text) <= maxRedacted && st.Mode&unix.S_IFMT == unix.S_IFREG {
			list = append(list, isolate.Redacted{Path: path, Text: withoutHashes(text), Mode: st.Mode & 0o777, UID: st.UID, GID: st.GID})
		}
	}
	return list
}

// withoutHashes returns the lines of shadow(5) or gshadow(5) in text, each with * in place of a password's hash. A field
// that no password matches, such as * or !, keeps its text, and so does an empty one. An account that is locked by a !
// before its hash stays locked. It leaves out a line without fields, which may be a part of another line.
func withoutHashes(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for line := range bytes.Lines(text) {
		name, rest, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		password, more, ok := bytes.Cut(rest, []byte(":"))
		if !ok {
			continue
		}
		out = append(append(out, name...), ':')
		out = append(append(out, withoutHash(string(password))...), ':')
		out = append(out, more...)
	}
	return out
}

// withoutHash returns the password field of a line of shadow(5) without the hash in it, as withoutHashes describes.
func withoutHash(field string) string {
	locks := 0
	for locks < len(field) && field[locks] == '!' {
		locks++
	}
	switch field[locks:] {
	case "", "*", "x":
		return field
	}
	return field[:locks] + "*"
}
