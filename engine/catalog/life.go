package catalog

import (
	"time"

	"github.com/snapfs/snapfs/internal/hostinfo"
	"github.com/snapfs/snapfs/internal/proc"
)

// An Instant is one moment by both clocks of a machine: the wall clock, which the administrator or NTP can
// set, and the time since boot, which runs steadily but restarts with the machine. The age of a sandbox is
// computed from two of them.
type Instant struct {
	Wall time.Time `json:"wall"`
	// Boot identifies the boot that Up counts from.
	Boot string        `json:"boot,omitempty"`
	Up   time.Duration `json:"up_ns"`
	// Unsure is set if the wall clock was not synchronised.
	Unsure bool `json:"unsure,omitempty"`
}

// Now returns the present moment by the wall clock and by the clock since boot. Cost: three system calls, and
// one small read in each process.
func Now() Instant {
	boot, _ := proc.BootID() // "" where the system does not report it
	return Instant{Wall: time.Now().Round(0), Boot: boot, Up: hostinfo.Uptime(), Unsure: !hostinfo.Synchronised()}
}

// since returns the time that passed from earlier to i. Within one boot this is the difference of the times
// since boot, which setting the clock does not change. Across boots it is that of the wall clock, and never
// negative. If the wall clock was not synchronised at one of the two, it is the time since the later boot,
// which is never too long.
func (i Instant) since(earlier Instant) time.Duration {
	switch {
	case i.Boot != "" && i.Boot == earlier.Boot:
		return i.Up - earlier.Up
	case i.Unsure || earlier.Unsure:
		return i.Up
	}
	return max(0, i.Wall.Sub(earlier.Wall))
}

// A Life is the age that a sandbox had at one moment, At, as its record stores it, for the limits on its
// lifetime. The present age is Age plus the time since At.
type Life struct {
	Age time.Duration `json:"age_ns"`
	At  Instant       `json:"at"`
}

// AgeAt returns the age of the sandbox at now. It is computed from the age that [Record.RecordAge] stored
// last, and without one from the wall clock and the time of creation.
func (r *Record) AgeAt(now Instant) time.Duration {
	if r.Life == nil {
		age := max(0, now.Wall.Sub(r.Created))
		if now.Unsure {
			age = min(age, now.Up)
		}
		return age
	}
	return r.Life.Age + now.since(r.Life.At)
}

// RecordAge stores the age of the sandbox at now in r. Later changes of the wall clock, until the next boot,
// then do not affect the age. The caller saves the record.
func (r *Record) RecordAge(now Instant) { r.Life = &Life{Age: r.AgeAt(now), At: now} }

// Timed reports whether any limit depends on the sandbox's age or on its time without activity.
func (l Limits) Timed() bool { return l.Idle > 0 || l.TTL > 0 || l.RemoveAfter > 0 }

// RemovalAge returns the age at which the sandbox is removed: the limit ttl plus the limit remove-after. 0
// means never.
func (l Limits) RemovalAge() time.Duration {
	if l.RemoveAfter == 0 {
		return 0
	}
	return l.TTL + l.RemoveAfter
}

// WasSet reports whether the wall clock was set by more than a minute since an earlier instant of
// the same boot.
func (i Instant) WasSet(earlier Instant) bool {
	by := i.Wall.Sub(earlier.Wall) - (i.Up - earlier.Up)
	return i.Boot == earlier.Boot && by.Abs() > time.Minute
}
