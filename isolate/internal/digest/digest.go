// Package digest compares the content of programs in a container with the SHA-256 digests that they must have.
package digest

import "errors"

// A Program is a program of a container, and the SHA-256 digest, in hexadecimal, that its content must have. With
// several for one path, one of them is enough.
type Program struct{ Path, SHA256 string }

// ErrContent is in the chain of the error of a program whose content has another digest.
var ErrContent = errors.New("the program has another content")
