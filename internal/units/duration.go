package units

import (
	"strconv"
	"strings"
	"time"
)

const (
	day = 24 * time.Hour
	// MaxDuration is a hundred years.
	MaxDuration = 36500 * day
)

// ParseDuration reads a duration as Go writes it, and days: "10m", "1h30m",
// "1.5s", "2d", "1d12h". It is more than nothing and at most [MaxDuration].
func ParseDuration(text string) (time.Duration, error) {
	fail := func(why string) (time.Duration, error) { return 0, wrong("duration", text, why) }
	number, unit := split(text)
	switch {
	case number == "":
		return fail(notNumber(text, "10m or 2d"))
	case unit == "":
		return fail("no unit: write " + number + "s, " + number + "m, " + number + "h or " + number + "d")
	}
	var sum uint64
	rest := text
	if after, ok := strings.CutPrefix(unit, "d"); ok {
		n, err := decimal(number, uint64(day))
		if err != nil {
			return fail(err.Error())
		}
		sum, rest = n, after
	}
	var d time.Duration
	if rest != "" {
		var err error
		if d, err = time.ParseDuration(rest); err != nil || d < 0 || rest[0] == '+' || rest[0] == '-' {
			return fail("not a duration: write it like 90s, 10m, 1h30m or 2d")
		}
	}
	switch {
	case sum > uint64(MaxDuration) || d > MaxDuration-time.Duration(sum):
		return fail("more than a hundred years: the most is 36500d")
	case sum+uint64(d) == 0:
		return fail("nothing happens in no time: for no limit, leave it out")
	}
	return time.Duration(sum) + d, nil
}

// FormatDuration writes a duration as [ParseDuration] reads it, exactly and
// without parts that are zero: "10m", "1d12h", "1.5s".
func FormatDuration(d time.Duration) string {
	var text string
	if d >= day {
		text, d = strconv.FormatInt(int64(d/day), 10)+"d", d%day
	}
	for _, u := range []struct {
		size time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}} {
		if d >= u.size {
			text, d = text+strconv.FormatInt(int64(d/u.size), 10)+u.name, d%u.size
		}
	}
	if d > 0 || text == "" {
		text += d.String() // below a minute it is one number and one unit
	}
	return text
}
