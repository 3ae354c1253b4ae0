package catalog

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/errs"
)

// maxName is the maximum length of the name of a sandbox or a snapshot, in bytes.
const maxName = 64

// CheckName returns an error unless s is a valid name of a sandbox or of one of its named
// snapshots: 1 to 64 ASCII letters, digits, '.', '_' and '-', starting with a letter or digit.
func CheckName(s string) error {
	why := ""
	switch {
	case s == "":
		why = "empty"
	case len(s) > maxName:
		why = fmt.Sprintf("%d bytes; at most %d are allowed", len(s), maxName)
	case !alphanumeric(s[0]):
		why = "must begin with a letter or a digit"
	default:
		for i := range len(s) {
			if !alphanumeric(s[i]) && !strings.ContainsRune("._-", rune(s[i])) {
				why = fmt.Sprintf("%q is not allowed; use letters, digits, '.', '_' and '-'", s[i])
				break
			}
		}
	}
	if why == "" {
		return nil
	}
	shown := s
	if len(shown) > maxName {
		shown = shown[:maxName] + "…"
	}
	return &errs.Error{Op: "naming", Path: fmt.Sprintf("%q", shown), Kind: errs.ErrInvalid, Err: fmt.Errorf("not a name: %s", why)}
}

func alphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// NewID returns an id for a sandbox: 50 random bits as ten letters and digits.
func NewID() string {
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	id, bits := make([]byte, 10), rand.Uint64() // seeded by the kernel at start
	for i := range id {
		id[i] = alphabet[bits&31]
		bits >>= 5
	}
	return string(id)
}

// NameFor returns a name for a sandbox that the user did not name: the last element of the workspace's path,
// without characters that names may not have, and the start of the sandbox's id.
func NameFor(workspace, id string) string {
	var b strings.Builder
	for _, c := range []byte(filepath.Base(workspace)) {
		if alphanumeric(c) || b.Len() > 0 && strings.ContainsRune("._-", rune(c)) {
			b.WriteByte(c)
		}
		if b.Len() == maxName/2 {
			break
		}
	}
	if b.Len() == 0 {
		b.WriteString("root")
	}
	return b.String() + "-" + id[:5]
}
