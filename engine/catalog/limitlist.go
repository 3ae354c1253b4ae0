package catalog

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/snapfs/snapfs/internal/units"
)

// A Limit is one field of [Limits] under its name. The name is that of a flag of run and new, of a line in a
// profile, of a NAME=VALUE for `snapfs limits --set`, and of a line that `snapfs show` prints.
type Limit struct {
	Name, Usage string
	Value       LimitValue
	// Bounds are the valid range; empty for a switch.
	Bounds
}

// Bounds are the least and the greatest value that a limit of a sandbox, such as its memory, accepts. Values
// outside, including zero, are errors.
type Bounds struct {
	// Least and Most are the ends of the range as text. Why is the reason for the lower end.
	Least, Why, Most string
	// Beyond describes the effect of a value above the capacity of the host.
	Beyond string
}

// A LimitValue reads and writes one limit of a sandbox, a field of a [Limits], as text. Flags, profiles and
// the list of limits use it.
type LimitValue interface {
	// Set parses text, such as "2G", and stores it as the value of the sandbox's limit; "none" removes the
	// limit.
	Set(text string) error
	// String returns the value of the sandbox's limit in the form that Set parses, or "" if there is no
	// limit.
	String() string
	// Type returns the kind of the limit's value, such as "size" or "duration", for the help text of its
	// flag.
	Type() string
	// Tighten adopts the value of the same limit in another [Limits] if that value is stricter, and reports
	// whether it did.
	Tighten(other LimitValue) bool
}

// Texts for Bounds.Beyond, which the help of a limit prints: the effect of setting the limit above the
// capacity of the host.
const (
	beyondSaid   = "no effect; snapfs says so at each start"
	beyondDisk   = "the disk or pool is full before"
	beyondUnsaid = "no effect"
	beyondTime   = "no effect"
)

// The ranges of values that the limits of a sandbox accept. The lower ends are the least values with which a
// container works, and the reason follows each.
var (
	cpusBounds   = Bounds{"0.01", "the kernel divides a processor into hundredths", "8192", beyondSaid}
	memoryBounds = Bounds{"1M", "a command needs that to start", "1E", beyondSaid}
	pidsBounds   = Bounds{"2", "one process of the sandbox itself, and a command", "1000000000000", beyondSaid}
	filesBounds  = Bounds{"8", "a command opens that many to start", "1000000000000", beyondSaid}
	diskBounds   = Bounds{"1M", "quotas are not more precise", "1E", beyondDisk}
	inodesBounds = Bounds{"1", "", "1000000000000", beyondDisk}
	rateBounds   = Bounds{"1B/s", "", "1E/s", beyondUnsaid}
	opsBounds    = Bounds{"1", "", "1000000000000", beyondUnsaid}
	timeBounds   = Bounds{"1ms", "less is over before a command starts", "36500d", beyondTime}
)

// Fields returns one [Limit], with name, value and valid range, for each resource limit that a sandbox can
// have. Its Value refers to the field of l: setting it changes l.
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
		{"cpus", "limit the processors that all processes use together, such as 1.5", cpus, cpusBounds},
		{"memory", "limit the memory of all processes together, such as 2G; the kernel kills them beyond it", size(&l.Memory, &memoryBounds), memoryBounds},
		{"pids", "limit the processes and threads", number(&l.PIDs, &pidsBounds), pidsBounds},
		{"files", "limit the open files of each process", number(&l.Files, &filesBounds), filesBounds},
		{"disk", "limit the data written, such as 5G", size(&l.Disk, &diskBounds), diskBounds},
		{"inodes", "limit the files created", number(&l.Inodes, &inodesBounds), inodesBounds},
		{"io-read", "limit reads from each disk, such as 100M/s", rate(&l.ReadRate), rateBounds},
		{"io-write", "limit writes to each disk, such as 50M/s", rate(&l.WriteRate), rateBounds},
		{"io-read-ops", "limit the reads per second from each disk", number(&l.ReadOps, &opsBounds), opsBounds},
		{"io-write-ops", "limit the writes per second to each disk", number(&l.WriteOps, &opsBounds), opsBounds},
		{"cpu-time", "kill all processes after this processor time of one start, such as 10m", duration(&l.CPUTime), timeBounds},
		{"time", "end each command after this time, such as 10m", duration(&l.Time), timeBounds},
		{"idle", "pause the sandbox, or end a command of run, after this time without activity, such as 15m", duration(&l.Idle), timeBounds},
		{"ttl", "at this age, such as 2h, end the commands that wait and pause the rest; nothing starts then", duration(&l.TTL), timeBounds},
		{"remove-after", "remove the sandbox this long after its ttl, or after its creation without one, such as 24h", &removal{*duration(&l.RemoveAfter)}, timeBounds},
		{"keep-end", "instead of removing the sandbox, keep its last state; it then starts no command", &switchValue{&l.KeepEnd}, Bounds{}},
	}
}

// Texts returns the limits that are set, as texts by name, such as "memory": "1G".
func (l *Limits) Texts() map[string]string {
	texts := map[string]string{}
	for _, f := range l.Fields() {
		if text := f.Value.String(); text != "" {
			texts[f.Name] = text
		}
	}
	return texts
}

// SetField sets the limit called name to a value given as text, such as memory to "2G"; the text "none"
// removes the limit. known is false for an unknown name. err is set if the text is no value of that limit.
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
		return fmt.Errorf("%w: write none for no limit", err)
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

// removal is the [LimitValue] of the limit remove-after. A profile that the user did not name cannot tighten
// it, because removing the sandbox earlier would lose data.
type removal struct{ limitValue[time.Duration] }

func (*removal) Tighten(LimitValue) bool { return false }

// A switchValue is the [LimitValue] of a limit that is only on or off, such as keep-end. to is the field of
// the Limits.
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
