package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/snapfs/snapfs/internal/units"
)

// A Limit is one of a [Limits]: a flag of the commands that make a sandbox, a line
// of a profile, a NAME=VALUE of `snapfs limits --set`, a line of `snapfs show`.
type Limit struct {
	Name, Usage string
	Value       LimitValue
	// Bounds are empty for a switch.
	Bounds
}

// Bounds are what is taken for a limit: anything else is an error, zero too.
type Bounds struct {
	// Least and Most are as the limit is written, Why is the reason for the least.
	Least, Why, Most string
	// Beyond is what one means that is larger than what the host has.
	Beyond string
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

// What a limit means that is larger than what the host has.
const (
	beyondSaid   = "limits nothing, which is said whenever something starts"
	beyondDisk   = "the disk, or the pool, is full before"
	beyondUnsaid = "limits nothing"
	beyondTime   = "no host is that old"
)

// The least that a box can live with, and that a disk or a clock can hold.
var (
	cpusBounds   = Bounds{"0.01", "the kernel divides a processor into hundredths", "8192", beyondSaid}
	memoryBounds = Bounds{"1M", "a command takes that to start", "1E", beyondSaid}
	pidsBounds   = Bounds{"2", "the sandbox has a process of its own beside a command", "1000000000000", beyondSaid}
	filesBounds  = Bounds{"8", "a command has that many open to start", "1000000000000", beyondSaid}
	diskBounds   = Bounds{"1M", "quotas are not more exact", "1E", beyondDisk}
	inodesBounds = Bounds{"1", "", "1000000000000", beyondDisk}
	rateBounds   = Bounds{"1B/s", "", "1E/s", beyondUnsaid}
	opsBounds    = Bounds{"1", "", "1000000000000", beyondUnsaid}
	timeBounds   = Bounds{"1ms", "less is over before anything has started", "36500d", beyondTime}
)

// Fields lists all limits that there are, with the values that l has.
func (l *Limits) Fields() []Limit {
	size := func(to *int64, b *Bounds) LimitValue {
		return &limitValue[int64]{to, "size", b, units.ParseSize, units.FormatSize}
	}
	rate := func(to *int64) LimitValue {
		return &limitValue[int64]{to, "rate", &rateBounds, units.ParseRate, units.FormatRate}
	}
	number := func(to *int64, b *Bounds) LimitValue {
		return &limitValue[int64]{to, "number", b, units.ParseCount, units.FormatCount}
	}
	duration := func(to *time.Duration) *limitValue[time.Duration] {
		return &limitValue[time.Duration]{to, "duration", &timeBounds, units.ParseDuration, units.FormatDuration}
	}
	cpus := &limitValue[float64]{&l.CPUs, "number", &cpusBounds, units.ParseCPUs, units.FormatCPUs}
	return []Limit{
		{"cpus", "how many processors' time all processes get together, as 1.5", cpus, cpusBounds},
		{"memory", "how much memory all processes get together, as 2G; beyond it all are killed", size(&l.Memory, &memoryBounds), memoryBounds},
		{"pids", "how many processes and threads there may be", number(&l.PIDs, &pidsBounds), pidsBounds},
		{"files", "how many files each process may have open", number(&l.Files, &filesBounds), filesBounds},
		{"disk", "how much the sandbox may write beyond its base, as 5G", size(&l.Disk, &diskBounds), diskBounds},
		{"inodes", "how many files the sandbox may make", number(&l.Inodes, &inodesBounds), inodesBounds},
		{"io-read", "how much may be read from each disk, as 100M/s", rate(&l.ReadRate), rateBounds},
		{"io-write", "how much may be written to each disk, as 50M/s", rate(&l.WriteRate), rateBounds},
		{"io-read-ops", "how many reads from each disk there may be in a second", number(&l.ReadOps, &opsBounds), opsBounds},
		{"io-write-ops", "how many writes to each disk there may be in a second", number(&l.WriteOps, &opsBounds), opsBounds},
		{"cpu-time", "how long all processes of one start may compute together, as 10m; beyond it they are killed", duration(&l.CPUTime), timeBounds},
		{"time", "how long each command may take, as 10m; beyond it, it is ended", duration(&l.Time), timeBounds},
		{"idle", "how long what runs may do nothing, as 15m; then it is paused until something comes for it; a command of run ends", duration(&l.Idle), timeBounds},
		{"ttl", "how long the sandbox lives, as 2h; then what runs in it is paused, and nothing is started; a command of run ends", duration(&l.TTL), timeBounds},
		{"remove-after", "how long after its ttl, or, without one, after it was made, the sandbox is removed, as 24h", &removal{*duration(&l.RemoveAfter)}, timeBounds},
		{"keep-end", "when the sandbox would be removed, keep its last state, and start nothing in it", &switchValue{&l.KeepEnd}, Bounds{}},
	}
}

// SetField reads one limit by its name. Errors: those of its value, of which "none" is
// no limit; with known false there is no such limit.
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
	bounds *Bounds
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
	if errors.Is(err, units.ErrZero) {
		return fmt.Errorf("%w: for no limit, write none", err)
	}
	if err != nil {
		return err
	}
	if least, err := v.parse(v.bounds.Least); err != nil || value < least {
		return errors.Join(err, fmt.Errorf("%q: the least is %s: %s", text, v.bounds.Least, v.bounds.Why))
	}
	*v.to = value
	return nil
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
		return fmt.Errorf("%q: write true or false", text)
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
