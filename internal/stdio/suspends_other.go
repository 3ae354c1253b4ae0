//go:build !linux

package stdio

import "os"

// Suspends returns false: on this system the suspend key always goes to the command in the terminal.
func Suspends(*os.File, byte) bool { return false }
