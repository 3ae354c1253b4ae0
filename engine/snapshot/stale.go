package snapshot

import (
	"errors"
	"fmt"
	"syscall"
)

// ExplainStale returns err with a text that helps where reading a file of a
// sandbox failed with ESTALE, and any other err as it is. ESTALE means that the
// sandbox copied only the blocks of a large file that it changed, and that the
// real file, which had the rest, was written to since.
func ExplainStale(err error) error {
	if !errors.Is(err, syscall.ESTALE) {
		return err
	}
	return fmt.Errorf("the sandbox copied only the blocks of this file that it changed, and the real file, which had the rest, was written to since "+
		"(take the real file with --theirs, or write the whole file anew inside): %w", err)
}
