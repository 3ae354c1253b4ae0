//go:build linux && cgo

package launch

// hasC reports whether the program may contain C code, whose library has memory of its own.
const hasC = true
