//go:build !linux

package stdio

import "os"

// Suspends returns false: a key goes to the command.
func Suspends(*os.File, byte) bool { return false }
