package catalog

import (
	"time"

	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/proc"
)

// An Instant is a moment by both clocks of a machine: that of its wall, which can be
// set, and that of its boot, which goes on evenly but begins anew.
type Instant struct {
	Wall time.Time `json:"wall"`
	// Boot names the boot that Up counts from.
	Boot string        `json:"boot,omitempty"`
	Up   time.Duration `json:"up_ns"`
	// Unsure: nothing kept the clock of the wall right.
	Unsure bool `json:"unsure,omitempty"`
}

// Now is this moment. Cost: three system calls, and one small read a process.
func Now() Instant {
	return Instant{Wall: time.Now().Round(0), Boot: proc.ThisBoot(), Up: hostinfo.Uptime(), Unsure: !hostinfo.Synchronised()}
}

// Since is how long i is after an earlier instant: by the clock of the boot where
// both are of the same one, so that nobody changes it by setting a clock. Across
// boots it is by the wall's, and never negative; where that was unsure at either instant,
// it is how long the later boot has lasted, which is never too long.
func (i Instant) Since(earlier Instant) time.Duration {
	switch {
	case i.Boot != "" && i.Boot == earlier.Boot:
		return i.Up - earlier.Up
	case i.Unsure || earlier.Unsure:
		return i.Up
	}
	return max(0, i.Wall.Sub(earlier.Wall))
}

// A Life is how long a sandbox had lived at an instant.
type Life struct {
	Age time.Duration `json:"age_ns"`
	At  Instant       `json:"at"`
}

// AgeAt is how long the sandbox has lived. What it lived before it was noted for the
// first time is by the clock of the wall.
func (r *Record) AgeAt(now Instant) time.Duration {
	if r.Life == nil {
		age := max(0, now.Wall.Sub(r.Created))
		if now.Unsure {
			age = min(age, now.Up)
		}
		return age
	}
	return r.Life.Age + now.Since(r.Life.At)
}

// Note says in the record how long the sandbox has lived, so that what happens to the
// wall's clock before the next boot does not count. The caller saves it.
func (r *Record) Note(now Instant) { r.Life = &Life{Age: r.AgeAt(now), At: now} }

// Timed reports whether something is to happen to the sandbox when its time comes.
func (l Limits) Timed() bool { return l.Idle > 0 || l.TTL > 0 || l.RemoveAfter > 0 }

// Over is the age at which the sandbox is removed, 0 for never.
func (l Limits) Over() time.Duration {
	if l.RemoveAfter == 0 {
		return 0
	}
	return l.TTL + l.RemoveAfter
}

// WasSet reports whether the clock of the wall was set by more than a minute since an
// earlier instant of the same boot.
func (i Instant) WasSet(earlier Instant) bool {
	by := i.Wall.Sub(earlier.Wall) - (i.Up - earlier.Up)
	return i.Boot == earlier.Boot && by.Abs() > time.Minute
}
