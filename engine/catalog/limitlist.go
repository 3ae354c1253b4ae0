package catalog

import (
	"cmp"
	"fmt"
	"time"

	"github.com/snapfs/snapfs/internal/units"
)

// A Limit is one of a [Limits]: a flag of the commands that make a sandbox, a line
// of a profile, a NAME=VALUE of `snapfs limits --set`, a line of `snapfs show`.
type Limit struct {
	Name, Usage string
	Value       LimitValue
}

// A LimitValue is the value of a limit, as people write it.
type LimitValue interface {
	// Set reads the limit, or takes it away for "none".
	Set(text string) error
	// String is the limit as it is read, or "".
	String() string
	// Type is what help calls it.
	Type() string
	// Tighten makes it that of the same limit in another [Limits], where there is one
	// that allows less, and reports whether there was.
	Tighten(other LimitValue) bool
}

// Fields lists all limits that there are, with the values that l has.
func (l *Limits) Fields() []Limit {
	size := func(to *int64) LimitValue {
		return &limitValue[int64]{to, "size", units.ParseSize, units.FormatSize}
	}
	rate := func(to *int64) LimitValue {
		return &limitValue[int64]{to, "rate", units.ParseRate, units.FormatRate}
	}
	number := func(to *int64) LimitValue {
		return &limitValue[int64]{to, "number", units.ParseCount, units.FormatCount}
	}
	duration := func(to *time.Duration) LimitValue {
		return &limitValue[time.Duration]{to, "duration", units.ParseDuration, units.FormatDuration}
	}
	return []Limit{
		{"cpus", "how many processors' time all processes get together, as 1.5", &limitValue[float64]{&l.CPUs, "number", units.ParseCPUs, units.FormatCPUs}},
		{"memory", "how much memory all processes get together, as 2G; beyond it all are killed", size(&l.Memory)},
		{"pids", "how many processes and threads there may be", number(&l.PIDs)},
		{"files", "how many files each process may have open", number(&l.Files)},
		{"disk", "how much the sandbox may write beyond its base, as 5G", size(&l.Disk)},
		{"inodes", "how many files the sandbox may make", number(&l.Inodes)},
		{"io-read", "how much may be read from each disk, as 100M/s", rate(&l.ReadRate)},
		{"io-write", "how much may be written to each disk, as 50M/s", rate(&l.WriteRate)},
		{"io-read-ops", "how many reads from each disk there may be in a second", number(&l.ReadOps)},
		{"io-write-ops", "how many writes to each disk there may be in a second", number(&l.WriteOps)},
		{"cpu-time", "how long all processes may compute, in all, as 10m; beyond it they are killed", duration(&l.CPUTime)},
		{"time", "how long each command may take, as 10m; beyond it, it is ended", duration(&l.Time)},
		{"idle", "how long what runs may do nothing, as 15m; then it is paused until something comes for it", duration(&l.Idle)},
		{"ttl", "how long the sandbox lives, as 2h; then what runs in it is paused, and nothing is started", duration(&l.TTL)},
		{"remove-after", "how long after its ttl, or, without one, after it was made, the sandbox is removed, as 24h", &removal{limitValue[time.Duration]{&l.RemoveAfter, "duration", units.ParseDuration, units.FormatDuration}}},
		{"keep-end", "when the sandbox would be removed, keep its last state, and start nothing in it", &switchValue{&l.KeepEnd}},
	}
}

// SetField reads one limit by its name. Errors: those of its value; with known
// false there is no such limit.
func (l *Limits) SetField(name, value string) (known bool, err error) {
	for _, f := range l.Fields() {
		if f.Name == name {
			if err := f.Value.Set(value); err != nil {
				return true, fmt.Errorf("%s: %w", name, err)
			}
			return true, nil
		}
	}
	return false, nil
}

type limitValue[T cmp.Ordered] struct {
	to     *T
	what   string
	parse  func(string) (T, error)
	format func(T) string
}

func (v *limitValue[T]) Set(text string) error {
	var none T
	if text == "none" {
		*v.to = none
		return nil
	}
	value, err := v.parse(text)
	if err == nil {
		*v.to = value
	}
	return err
}

func (v *limitValue[T]) String() string {
	var none T
	if v.to == nil || *v.to == none {
		return ""
	}
	return v.format(*v.to)
}

func (v *limitValue[T]) Type() string { return v.what }

func (v *limitValue[T]) Tighten(other LimitValue) bool {
	var none T
	o, same := other.(*limitValue[T])
	if !same || *o.to == none || *v.to != none && *v.to <= *o.to {
		return false
	}
	*v.to = *o.to
	return true
}

// A removal is not tightened by a profile that nobody has named: something would be lost
// the sooner.
type removal struct{ limitValue[time.Duration] }

func (*removal) Tighten(LimitValue) bool { return false }

// A switchValue is on or off.
type switchValue struct{ to *bool }

func (v *switchValue) Set(text string) error {
	switch text {
	case "true":
		*v.to = true
	case "false", "none":
		*v.to = false
	default:
		return fmt.Errorf("%q is not true or false", text)
	}
	return nil
}

func (v *switchValue) String() string {
	if v.to == nil || !*v.to {
		return ""
	}
	return "true"
}

func (v *switchValue) Type() string { return "bool" }

func (v *switchValue) Tighten(other LimitValue) bool {
	o, same := other.(*switchValue)
	if !same || *v.to || !*o.to {
		return false
	}
	*v.to = true
	return true
}
