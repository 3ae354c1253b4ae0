package units

import (
	"math"
	"strings"
	"testing"
	"time"
)

// reads are texts with their values; refused are texts with a part of the error.
type (
	reads[T any] map[string]T
	refused      map[string]string
)

func check[T comparable](t *testing.T, parse func(string) (T, error), good reads[T], bad refused) {
	t.Helper()
	for text, want := range good {
		if got, err := parse(text); err != nil || got != want {
			t.Errorf("%q: %v %v, want %v", text, got, err, want)
		}
	}
	for text, piece := range bad {
		got, err := parse(text)
		if err == nil {
			t.Errorf("%q: taken for %v", text, got)
			continue
		}
		if !strings.Contains(err.Error(), piece) {
			t.Errorf("%q: %q does not say %q", text, err, piece)
		}
	}
}

func TestSizesArePowersOf1024(t *testing.T) {
	check(t, ParseSize, reads[int64]{
		"512M": 512 << 20, "2G": 2 << 30, "2g": 2 << 30, "1.5T": 3 << 39, "100MiB": 100 << 20, "1K": 1024, "1KB": 1024,
		"1KiB": 1024, "1kB": 1024, "1B": 1, "1000B": 1000, "0.5K": 512, "1E": 1 << 60, "1P": 1 << 50, "1.3K": 1331, "007M": 7 << 20,
	}, refused{
		"": "empty: write 512M", "512": "no unit: write 512M, or 512B", "-1M": "no sign: write", "+1M": "no sign", "0M": "fits in zero",
		"0.0001K": "fits in zero", "0": "fits in zero", "0x10": `"x10" is no unit of size: write it like 512M`, "0k5": "no unit of size", "NaN": "not a number: write 512M", "inf": "not a number", "M": "not a number", " 1M": "blank",
		"1 M": `" M" is no unit of size: write it like`, "1M ": "is no unit", "1e3M": "write the number out, as 512M", "1e309": "write the number out", "0x10M": "is no unit", "1Mb": "is no unit",
		"1Mib": "is no unit", "1b": "is no unit", "1Q": "is no unit", "1M/s": "is no unit", "1.M": "one point between", ".5M": "one point between",
		"1.2.3M": "one point between", "1.1E": "the most is 1E", "99999999999999999999999999M": "the most is 1E", "99999999999999999999": "the most is 1E", "99999999999999": "no unit: write 99999999999999B for bytes", "17179869184G": "the most is 1E",
		"1.1234567890123456789G": "1.123 is enough", "1_000M": "no unit of size: write it like 512M", "1,5G": "no unit of size: write it like 512M", "١M": "not a number", "1\nM": `"\nM" is no unit of size: write it like`,
	})
}

func TestRatesNeedAUnitOfTime(t *testing.T) {
	check(t, ParseRate, reads[int64]{"100M/s": 100 << 20, "1.5G/s": 3 << 29, "512B/s": 512},
		refused{
			"100M": "write 100M/s", "100/s": "no unit: write 100M/s", "100M/m": "100M/s", "/s": "empty", "": "empty: write 512M/s", "64": "no unit: write 64M/s",
			"-1M/s": "no sign", "-1": "no sign: write 512M/s", "0M/s": "fits in zero", "0": "fits in zero", "2E/s": "the most is 1E/s", "NaN": "not a number: write 512M/s", "100Mb/s": "is no unit", "100Mbit/s": "is no unit", "100M/s ": "100M/s",
		})
}

func TestCountsAreWholeNumbers(t *testing.T) {
	check(t, ParseCount, reads[int64]{"200": 200, "1": 1, "1000000000000": MaxCount},
		refused{
			"": "empty: write 200", "0": "allows nothing", "0k": "allows nothing", "0.0": "allows nothing", "0.5": "whole number", "99999999999999999999M": "the most is", "1_000": "digits alone", "-5": "no sign", "1.5": "whole number", "200M": "no unit: write 200", "2e3": "digits alone",
			" 1": "blank", "1 ": "digits alone", "1000000000001": "the most is", "99999999999999999999999": "the most is", "many": "not a number",
		})
}

func TestMoneyHasSixDecimals(t *testing.T) {
	check(t, ParseMoney, reads[int64]{"5": 5_000_000, "0": 0, "0.25": 250_000, "0.000001": 1, "2.50000000": 2_500_000, "1000000000": MaxMoney},
		refused{
			"": "empty: write 2.50", "0.0000001": "six decimals", "1000000000.01": "too much: the most is 1000000000.00", "-1": "no sign", "5USD": "no unit: write 5", "1.": "one point between", "$5": "not a number", "99999999999999999999999": "too much",
		})
	for n, text := range map[int64]string{0: "0.00", 1: "0.000001", 2_500_000: "2.50", 1_234_567: "1.234567", -50_000: "-0.05", 780: "0.00078"} {
		if got := FormatMoney(n); got != text {
			t.Errorf("%d: %s, not %s", n, got, text)
		}
	}
}

func TestCPUsAreDecimal(t *testing.T) {
	check(t, ParseCPUs, reads[float64]{"1.5": 1.5, "2": 2, "0.01": 0.01, "8192": 8192, "0.333": 0.333},
		refused{
			"": "empty", "0": "on none", "0.0": "on none", "0%": "on none", "1e309": "like 1.5", "-1": "no sign", "0.001": "the least is 0.01", "8193": "the most is 8192",
			"150%": "write 1.5", "2cpus": "no unit: write 2", "1e2": "like 1.5", "99999M": "the most is 8192", "NaN": "not a number", "Inf": "not a number", "1.": "one point between",
			".5": "one point between", "1.2.3": "one point between", " 2": "blank", "99999999999999999999999": "the most is",
		})
}

func TestDurations(t *testing.T) {
	check(t, ParseDuration, reads[time.Duration]{
		"10m": 10 * time.Minute, "1h30m": 90 * time.Minute, "2d": 48 * time.Hour, "1.5d": 36 * time.Hour, "1d12h": 36 * time.Hour,
		"1.5s": 1500 * time.Millisecond, "1ns": 1, "1.5µs": 1500, "1us": 1000, "1h0m": time.Hour, "876000h": MaxDuration, "59.999999999s": time.Minute - 1, "36500d": MaxDuration,
	}, refused{
		"": "empty: write 10m", "10": "no unit: write 10s", "99999999999999999999": "no unit: write it like", "0": "in no time", "0s": "in no time",
		"0d": "in no time", "0d0s": "in no time", "0.1ns": "in no time", "-1m": "no sign", "+1m": "no sign", "1d-1h": `"d-" is no unit of time`,
		"2w": `"w" is no unit of time: write it like 90s`, "1M": "no unit of time", "1h2d": "not a duration: write it like 90s", "1d5": "like 90s",
		"36501d": "the most is 36500d", "36500d1ns": "the most is 36500d", "999999999999999999999d": "the most is", "9999999h": "the most is 36500d",
		"999999999999999999999ns1h": "the most is", "1e309": "not a duration", "1e3s": "not a duration", "1h 5m": "no unit of time",
		"1 h": "like 90s", " 1h": "blank", "1.d": "one point between", "1h.5s": "one point between", "NaN": "not a number", "1d ": "like 90s", "1\nm": `"\nm" is no unit`,
	})
}

func TestTextForms(t *testing.T) {
	for got, want := range map[string]string{
		SizeText(2 << 30): "2 GiB", SizeText(3 << 29): "1.5 GiB", SizeText(1): "1 byte", SizeText(1023): "1023 bytes",
		SizeText(1<<20 - 1): "1 MiB", SizeText(1 << 60): "1 EiB", SizeText(100 << 10): "100 KiB", SizeText(0): "0 bytes",
		SizeText(math.MaxInt64): "8 EiB",
		FormatSize(3 << 29):     "1.5G", FormatSize(1000): "1000B", FormatSize(-1 << 30): "-1073741824B", FormatSize(9 << 27): "1.125G",
		FormatSize(1<<30 + 1): "1073741825B", FormatRate(1 << 20): "1M/s", FormatCPUs(1.5): "1.5", FormatCount(200): "200",
		FormatDuration(10 * time.Minute): "10m", FormatDuration(36 * time.Hour): "1d12h", FormatDuration(90 * time.Second): "1m30s",
		FormatDuration(1500 * time.Millisecond): "1.5s", FormatDuration(time.Hour + time.Nanosecond): "1h1ns", FormatDuration(0): "0s",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// FuzzFormatIsRead: Parse returns the same value from the text of a Format function.
func FuzzFormatIsRead(f *testing.F) {
	for _, n := range []int64{1, 1023, 1024, 1 << 20, 3 << 29, 1<<30 + 1, 1 << 60, math.MaxInt64} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, n int64) {
		n = max(n, 1)
		back(t, min(n, MaxSize), FormatSize, ParseSize)
		back(t, min(n, MaxSize), FormatRate, ParseRate)
		back(t, min(n, MaxCount), FormatCount, ParseCount)
		back(t, time.Duration(min(n, int64(MaxDuration))), FormatDuration, ParseDuration)
		back(t, float64(n%(MaxCPUs*100-1)+1)/100, FormatCPUs, ParseCPUs)
	})
}

func back[T comparable](t *testing.T, x T, format func(T) string, parse func(string) (T, error)) {
	t.Helper()
	if got, err := parse(format(x)); err != nil || got != x {
		t.Errorf("%v is written %q, and read %v %v", x, format(x), got, err)
	}
}

// FuzzParseIsWritten: an accepted value is in range, and survives formatting and parsing.
func FuzzParseIsWritten(f *testing.F) {
	for _, text := range []string{"1.5T", "100MiB/s", "2d3h", "0.5", "1.3K", "18446744073709551615E", "1d1.5h", "9223372036854775807ns"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n, err := ParseSize(text); err == nil {
			if n < 1 || n > MaxSize {
				t.Errorf("%q is %d", text, n)
			}
			back(t, n, FormatSize, ParseSize)
		}
		if n, err := ParseRate(text); err == nil {
			back(t, n, FormatRate, ParseRate)
		}
		if n, err := ParseCount(text); err == nil {
			back(t, n, FormatCount, ParseCount)
		}
		if n, err := ParseCPUs(text); err == nil {
			if !(n >= MinCPUs && n <= MaxCPUs) {
				t.Errorf("%q is %v", text, n)
			}
			back(t, n, FormatCPUs, ParseCPUs)
		}
		if d, err := ParseDuration(text); err == nil {
			if d < 1 || d > MaxDuration {
				t.Errorf("%q is %v", text, d)
			}
			back(t, d, FormatDuration, ParseDuration)
		}
	})
}
