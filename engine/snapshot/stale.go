package snapshot

import (
	"errors"
	"fmt"
	"syscall"
)

// ExplainStale adds an explanation for the user to an ESTALE that reading a file of a sandbox returned, and
// returns other errors unchanged. ESTALE means that the sandbox copied only the changed blocks of a large
// file, and that the real file, which has the other blocks, was written to since.
func ExplainStale(err error) error {
	if !errors.Is(err, syscall.ESTALE) {
		return err
	}
	return fmt.Errorf("the sandbox copied only the blocks of this file that it changed, and the real file, which had the rest, was written to since "+
		"(take the real file with --theirs, or write the whole file anew inside): %w", err)
}
