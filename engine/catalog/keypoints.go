package catalog

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Key points at which snapfs takes a snapshot by itself.
const (
	AtExec      = "exec"      // before and after each command
	AtLimit     = "limit"     // when a limit was hit
	AtRefusal   = "refusal"   // when the network refused an access
	AtPlan      = "plan"      // before a plan
	AtPromotion = "promotion" // before a promotion
	AtRefresh   = "refresh"   // before and after a refresh
	AtRollback  = "rollback"  // before a rollback
)

// KeyPointNames are the names of all key points.
var KeyPointNames = []string{AtExec, AtLimit, AtRefusal, AtPlan, AtPromotion, AtRefresh, AtRollback}

// DefaultKeep is the number of snapshots at key points that a sandbox keeps where neither a number nor an age is set.
const DefaultKeep = 100

// KeyPoints say when snapfs takes snapshots of a sandbox by itself, and how long they stay.
type KeyPoints struct {
	At []string `json:"at"`
	// Keep is the greatest number of such snapshots, 0 for [DefaultKeep], or for any number where KeepFor is set.
	Keep int `json:"keep,omitempty"`
	// KeepFor is the age at which such a snapshot is removed, 0 for never.
	KeepFor time.Duration `json:"keep_for_ns,omitempty"`
}

// CheckKeyPoint returns an error for a text that names no key point.
func CheckKeyPoint(name string) error {
	if !slices.Contains(KeyPointNames, name) {
		return fmt.Errorf("unknown key point %q: use %s", name, strings.Join(KeyPointNames, ", "))
	}
	return nil
}

// Has reports whether snapfs takes a snapshot at the named key point. k may be nil.
func (k *KeyPoints) Has(point string) bool { return k != nil && slices.Contains(k.At, point) }

// Most returns the greatest number of snapshots at key points, 0 for any number.
func (k *KeyPoints) Most() int {
	if k.Keep == 0 && k.KeepFor == 0 {
		return DefaultKeep
	}
	return k.Keep
}

// A Why says why snapfs took a snapshot by itself.
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
