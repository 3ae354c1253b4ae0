package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/internal/units"
)

// A limitValue is one limit: a flag of the commands that make a sandbox, a
// NAME=VALUE of `snapfs limits --set`, and a line of `snapfs show`.
type limitValue[T comparable] struct {
	to     *T
	what   string
	parse  func(string) (T, error)
	format func(T) string
}

// Set reads the limit, or takes it away.
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

// String is the limit as it is read, or "".
func (v *limitValue[T]) String() string {
	var none T
	if v.to == nil || *v.to == none {
		return ""
	}
	return v.format(*v.to)
}

// Type is what help calls it.
func (v *limitValue[T]) Type() string { return v.what }

// A limitFlag is one of those that a sandbox can have, with its value.
type limitFlag struct {
	name, usage string
	value       pflag.Value
}

// limitsIn lists all limits, their values in l.
func limitsIn(l *catalog.Limits) []limitFlag {
	size := func(to *int64) pflag.Value {
		return &limitValue[int64]{to, "size", units.ParseSize, units.FormatSize}
	}
	rate := func(to *int64) pflag.Value {
		return &limitValue[int64]{to, "rate", units.ParseRate, units.FormatRate}
	}
	number := func(to *int64) pflag.Value {
		return &limitValue[int64]{to, "number", units.ParseCount, units.FormatCount}
	}
	duration := func(to *time.Duration) pflag.Value {
		return &limitValue[time.Duration]{to, "duration", units.ParseDuration, units.FormatDuration}
	}
	return []limitFlag{
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
		{"ttl", "how long the sandbox lives, as 2h; then what runs in it is ended, and nothing is started", duration(&l.TTL)},
	}
}

// addLimits gives a command a flag for each limit.
func addLimits(f *pflag.FlagSet, l *catalog.Limits) {
	for _, one := range limitsIn(l) {
		f.Var(one.value, one.name, one.usage)
	}
}

// setLimits reads NAME=VALUE texts into l.
func setLimits(l *catalog.Limits, texts []string) error {
	all := limitsIn(l)
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		if !ok {
			return usageError{fmt.Errorf("%q: it is NAME=VALUE, as memory=4G, or memory=none", text)}
		}
		known := false
		names := make([]string, 0, len(all))
		for _, one := range all {
			names = append(names, one.name)
			if one.name != name {
				continue
			}
			known = true
			if err := one.value.Set(value); err != nil {
				return usageError{fmt.Errorf("%s: %w", name, err)}
			}
		}
		if !known {
			return usageError{errors.New("there is no limit " + name + ": there are " + strings.Join(names, ", "))}
		}
	}
	return nil
}

// describeLimits are the limits that are there, as they are written.
func describeLimits(l catalog.Limits) string {
	var list []string
	for _, one := range limitsIn(&l) {
		if text := one.value.String(); text != "" {
			list = append(list, one.name+" "+text)
		}
	}
	return strings.Join(list, ", ")
}
