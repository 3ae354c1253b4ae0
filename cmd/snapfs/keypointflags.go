package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/units"
	"github.com/spf13/cobra"
)

// keyPointFlags hold the flags about snapshots that snapfs takes by itself (key points), of the commands that
// create a sandbox.
type keyPointFlags struct {
	at      []string
	keep    int
	keepFor time.Duration
	size    int64
}

// addKeyPoints adds the flags about snapshots that snapfs takes by itself to a command.
func (r *requestFlags) addKeyPoints(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringSliceVar(&r.keyPoints.at, "snapshot-at", nil, "take snapshots by itself at these `points`: "+strings.Join(catalog.KeyPointNames, ", "))
	f.IntVar(&r.keyPoints.keep, "keep-snapshots", 0, fmt.Sprintf("keep the last `N` of these snapshots (default %d)", catalog.DefaultKeep))
	f.Var((*durationValue)(&r.keyPoints.keepFor), "keep-snapshots-for", "keep these snapshots for this `duration`")
	f.Var((*heldValue)(&r.keyPoints.size), "keep-snapshots-size", "let these snapshots hold at most this `size` of disk space that nothing else holds")
	cmd.RegisterFlagCompletionFunc("snapshot-at", cobra.FixedCompletions(catalog.KeyPointNames, noFiles)) //nolint:errcheck // the flag is there
}

// policy returns the policy for snapshots that snapfs takes by itself, from the flags, or nil if none is set.
// given reports whether a flag is set.
func (k *keyPointFlags) policy(given func(string) bool) (*catalog.KeyPoints, error) {
	for _, point := range k.at {
		if err := catalog.CheckKeyPoint(point); err != nil {
			return nil, usageError(fmt.Errorf("--snapshot-at: %w", err))
		}
	}
	if given("keep-snapshots") && k.keep < 1 {
		return nil, usageError(errors.New("--keep-snapshots requires a number of at least 1"))
	}
	if given("keep-snapshots-for") && k.keepFor == 0 {
		return nil, usageError(errors.New("--keep-snapshots-for requires a duration above zero"))
	}
	if len(k.at) == 0 && k.keep == 0 && k.keepFor == 0 && k.size == 0 {
		return nil, nil
	}
	return &catalog.KeyPoints{At: k.at, Keep: k.keep, KeepFor: k.keepFor, KeepSize: k.size}, nil
}

// A heldValue is the value of the flag --keep-snapshots-size: how many bytes the snapshots that snapfs takes
// by itself may hold, such as 2G.
type heldValue int64

// Set parses the value of --keep-snapshots-size, a size such as 2G. Package pflag calls it.
func (h *heldValue) Set(text string) error {
	n, err := units.ParseSize(text)
	if err == nil {
		*h = heldValue(n)
	}
	return err
}

func (h *heldValue) String() string {
	if *h == 0 {
		return ""
	}
	return units.FormatSize(int64(*h))
}

// Type returns the name of the type of the flag --keep-snapshots-size in the help text.
func (h *heldValue) Type() string { return "size" }
