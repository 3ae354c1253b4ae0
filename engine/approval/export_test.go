package approval

import "github.com/snapfs/snapfs/engine/diff"

// Reason returns why a change needs approval by name, or "". abs is the absolute path of
// the change.
func Reason(c diff.Change, abs string) string {
	if why, _ := byPath(&c, abs, &finder{index: patterns()}); why != "" {
		return why
	}
	for _, n := range byKind(&c) {
		return n.why
	}
	return ""
}
