package catalog

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// The key points: names of the moments at which snapfs takes a snapshot of a sandbox by itself, if the
// sandbox's [KeyPoints] list them.
const (
	AtExec      = "exec"      // before and after each command
	AtLimit     = "limit"     // when a limit was hit
	AtRefusal   = "refusal"   // when the network refused an access
	AtDrift     = "drift"     // when the running sandbox's supervisor found more changes of the real tree
	AtPlan      = "plan"      // before a plan
	AtPromotion = "promotion" // before a promotion
	AtRefresh   = "refresh"   // before and after a refresh
	AtRollback  = "rollback"  // before a rollback
)

// KeyPointNames are the names of all key points: the moments at which snapfs can take a snapshot by itself.
var KeyPointNames = []string{AtExec, AtLimit, AtRefusal, AtDrift, AtPlan, AtPromotion, AtRefresh, AtRollback}

// DefaultKeep is how many automatic snapshots (those at key points) snapfs stores for a sandbox for which
// neither a number nor an age is set. It removes the oldest beyond that.
const DefaultKeep = 100

// KeyPoints say at which moments snapfs takes snapshots of a sandbox by itself, and how long these stay. They
// are part of the sandbox's record.
type KeyPoints struct {
	At []string `json:"at"`
	// Keep is the greatest number of such snapshots, 0 for [DefaultKeep], or for any number where KeepFor or
	// KeepSize is set.
	Keep int `json:"keep,omitempty"`
	// KeepFor is the age at which such a snapshot is removed, 0 for never.
	KeepFor time.Duration `json:"keep_for_ns,omitempty"`
	// KeepSize is how many bytes of disk space such snapshots may hold that nothing else holds, 0 for any.
	KeepSize int64 `json:"keep_bytes,omitempty"`
}

// CheckKeyPoint returns an error, with the valid names, if name is no key point, that is, no moment at which
// snapfs can take a snapshot by itself.
func CheckKeyPoint(name string) error {
	if !slices.Contains(KeyPointNames, name) {
		return fmt.Errorf("unknown key point %q: use %s", name, strings.Join(KeyPointNames, ", "))
	}
	return nil
}

// Has reports whether snapfs takes a snapshot of the sandbox at the key point called point, such as [AtExec].
// k may be nil: no key points.
func (k *KeyPoints) Has(point string) bool { return k != nil && slices.Contains(k.At, point) }

// Most returns how many automatic snapshots a sandbox may have before the oldest is removed; 0 means any
// number.
func (k *KeyPoints) Most() int {
	if k.Keep == 0 && k.KeepFor == 0 && k.KeepSize == 0 {
		return DefaultKeep
	}
	return k.Keep
}

// A Why is the reason for which snapfs took a snapshot by itself: the key point, and the command it belongs
// to. The snapshot's entry in the record contains it.
type Why struct {
	// Point is the name of the key point.
	Point string `json:"point"`
	// When is "before" or "after"; "" where the point is an instant.
	When string `json:"when,omitempty"`
	// Command is the command of an exec, of which long ones are cut, and Status its exit status after it.
	Command []string `json:"command,omitempty"`
	Status  *int     `json:"status,omitempty"`
	// Limit is the name of the limit that was hit.
	Limit string `json:"limit,omitempty"`
	// Host is the destination that was refused.
	Host string `json:"host,omitempty"`
	// InUse is set if the sandbox had a supervisor at that time.
	InUse bool `json:"in_use,omitempty"`
	// Promotion is the identifier of the last promotion of this state.
	Promotion string `json:"promotion,omitempty"`
}
