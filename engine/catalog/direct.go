package catalog

import (
	"slices"
	"strings"
)

// Direct says which jobs (submitted commands that nobody waits for) run in the real workspace, without a
// sandbox, because a sandbox would not be worth it. Nothing of such a job can be reviewed or undone.
type Direct struct {
	// Commands are command lines, whose words are separated by blanks. A last word * stands for any further
	// arguments, also none.
	Commands []string `json:"commands,omitempty"`
	// Risky means that only a job with risky effects needs a sandbox. A job is not risky if its submitter
	// declared [EffectNone].
	Risky bool `json:"risky,omitempty"`
}

// The effects that the submitter of a job may declare, that is, what the job's command changes or uses.
const (
	EffectNone      = "none"      // it only reads
	EffectWorkspace = "workspace" // it changes files of the workspace
	EffectNetwork   = "network"   // it uses the network
	EffectSystem    = "system"    // it changes other things
)

// Effects returns the effects that the submitter of a job may declare.
func Effects() []string {
	return []string{EffectNone, EffectWorkspace, EffectNetwork, EffectSystem}
}

// Why returns the reason for which a job runs without a sandbox, for its record, or "" if it needs one. args
// are the program and its arguments, and effects those that its submitter declared; none means unknown
// effects. d may be nil: every job needs a sandbox.
func (d *Direct) Why(args, effects []string) string {
	if d == nil {
		return ""
	}
	for _, c := range d.Commands {
		words := strings.Fields(c)
		more := len(words) > 1 && words[len(words)-1] == "*"
		if more {
			words = words[:len(words)-1]
		}
		if len(args) >= len(words) && slices.Equal(args[:len(words)], words) && (more || len(args) == len(words)) {
			return "the profile lists it as direct: " + c
		}
	}
	if d.Risky && slices.Equal(effects, []string{EffectNone}) {
		return "its declared effects are none, and the profile requires a sandbox only when=risky"
	}
	return ""
}
