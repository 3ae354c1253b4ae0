package main

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/limits"
	"github.com/snapfs/snapfs/network"
)

// A way is one in which a person gives a limit; it answers with its value as it is
// written again.
type way func(t *testing.T, name, value string) (string, error)

var ways = map[string]way{
	"flag": func(_ *testing.T, name, value string) (string, error) {
		var l catalog.Limits
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		addLimits(f, &l)
		err := f.Parse([]string{"--" + name + "=" + value})
		if err != nil {
			err = flagError(err)
		}
		return limitOf(&l, name), err
	},
	"set": func(_ *testing.T, name, value string) (string, error) {
		var l catalog.Limits
		err := setLimits(&l, []string{name + "=" + value})
		return limitOf(&l, name), err
	},
	"profile": func(_ *testing.T, name, value string) (string, error) {
		if name != "keep-end" {
			value = strconv.Quote(value)
		}
		p, err := policy.Parse("/snapfs.toml", []byte("[limits]\n"+name+" = "+value+"\n"))
		if err != nil {
			return "", err
		}
		return limitOf(&p.Sandbox.Limits, name), nil
	},
}

func limitOf(l *catalog.Limits, name string) string {
	for _, f := range l.Fields() {
		if f.Name == name {
			return f.Value.String()
		}
	}
	return "no limit " + name
}

// nonsense is what no limit can be, by the kind of its value; "" is any. The answers are
// a piece of the error.
var nonsense = map[string]map[string]string{
	"": {
		"": "empty: write", "-1": "no sign: write", "+1": "no sign: write", "NaN": "not a number: write", "inf": "not a number: write",
		"many": "not a number: write", "٣": "not a number: write", "½": "not a number: write", " 1": "blank", "0": "write none for no limit",
		"1e309": "", "1.2.3": "one point between", "1\n": `\n`, "1\x00": `\x00`, "1 ": "", "unlimited": "not a number", "None": "not a number",
	},
	"cpus": {
		"99999999999999999999": "the most is 8192", "1e309": "like 1.5", "-0.5": "no sign", "150%": "write 1.5", "2cpus": "no unit: write 2",
		"0.0": "write none", "8193": "the most is 8192", "0.001": "the least is 0.01", "1,5": "like 1.5",
	},
	"size": {
		"512": "no unit: write 512M, or 512B", "0M": "write none", "0x10": "like 512M", "-1G": "no sign", "1Mb": "write 1K", "1M/s": "no unit of size",
		"99999999999999999999": "the most is 1E", "99999999999999999999M": "the most is 1E", "99999999999999": "write 99999999999999B for", "1e309": "as 512M",
		"2E": "the most is 1E", "1.1E": "the most is 1E", "1K": "the least is 1M", "1B": "the least is 1M", "1\nM": "like 512M", "5m0s": "no unit of size",
	},
	"rate": {
		"512": "no unit: write 512M/s", "10M": "in what time: write 10M/s", "0M/s": "write none", "10M/m": "10M/s", "2E/s": "the most is 1E/s",
		"99999999999999999999": "the most is 1E/s", "1e309": "as 512M/s", "-1M/s": "no sign: write 512M/s", "0.5B/s": "write none",
	},
	"number": {
		"1.5": "whole number", "10k": "no unit: write 10", "1e309": "as 200", "1_000": "as 200", "99999999999999999999": "the most is 1000000000000",
		"1000000000001": "the most is", "99999999999999999999M": "the most is", "0k": "write none",
	},
	"duration": {
		"10": "no unit: write 10s, 10m", "0s": "write none", "0d": "write none", "9999999h": "the most is 36500d", "36501d": "the most is",
		"99999999999999999999": "no unit: write it like 90s", "1w": "no unit of time: write it like 90s", "10M": "no unit of time", "1h2d": "like 90s",
		"1e309": "like 90s", "1ns": "the least is 1ms", "-5m": "no sign", "1d-1h": "like 90s",
	},
	"bool": {"1": "true", "yes": "", "": "", "0": "", "TRUE": "", "-1": "", "NaN": ""},
}

// fine is what a limit can be, and how it is written again.
var fine = map[string]map[string]string{
	"":         {"none": ""},
	"cpus":     {"1.50": "1.5", "64": "64"},
	"size":     {"1.5g": "1.5G", "100MiB": "100M", "5m": "5M", "007M": "7M"},
	"rate":     {"100mB/s": "100M/s"},
	"number":   {"200": "200", "0200": "200"},
	"duration": {"90m": "1h30m", "1.5d": "1d12h", "1h0m": "1h", "876000h": "36500d"},
	"bool":     {"true": "true", "false": ""},
}

// right finds what an error says would be right.
var right = regexp.MustCompile(`(?:write|like|as|or|least is|most is) ([0-9.]+[A-Za-z]*(?:/s)?)`)

func TestWhatALimitMeans(t *testing.T) {
	for _, l := range new(catalog.Limits).Fields() {
		kind := l.Value.Type()
		if l.Name == "cpus" {
			kind = "cpus"
		}
		bad, good := map[string]string{}, map[string]string{}
		for _, of := range []string{"", kind} {
			for value, piece := range nonsense[of] {
				if of != "" || kind != "bool" {
					bad[value] = piece
				}
			}
			for value, again := range fine[of] {
				good[value] = again
			}
		}
		if kind != "bool" {
			good[l.Least], good[l.Most] = l.Least, l.Most
		} else {
			delete(good, "none") // in a profile it would be a text
		}
		for name, give := range ways {
			for value, again := range good {
				if got, err := give(t, l.Name, value); err != nil || got != again {
					t.Errorf("%s %s %q: %q %v, want %q", name, l.Name, value, got, err, again)
				}
			}
			for value, piece := range bad {
				got, err := give(t, l.Name, value)
				if err == nil || got != "" {
					t.Errorf("%s %s %q: taken as %q (%v)", name, l.Name, value, got, err)
					continue
				}
				says(t, err, piece)
				if kind == "bool" {
					continue
				}
				if hints := right.FindAllStringSubmatch(err.Error(), -1); hints != nil && !anyIsTaken(t, give, l.Name, hints) {
					t.Errorf("%s %s %q: nothing of what would be right is taken: %v", name, l.Name, value, err)
				}
			}
		}
	}
}

func anyIsTaken(t *testing.T, give way, name string, hints [][]string) bool {
	for _, h := range hints {
		if _, err := give(t, name, h[1]); err == nil {
			return true
		}
	}
	return false
}

// says checks that an error has one line, which a terminal prints as it is, and this
// piece in it.
func says(t *testing.T, err error, piece string) {
	t.Helper()
	if text := err.Error(); !strings.Contains(text, piece) || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		t.Errorf("%q does not say %q in one line", text, piece)
	}
}

// TestTheLeastOfALimitIsWhatABoxCanLiveWith: what is taken when a sandbox is made is not
// refused when something is started in it.
func TestTheLeastOfALimitIsWhatABoxCanLiveWith(t *testing.T) {
	for _, most := range []bool{false, true} {
		var l catalog.Limits
		for _, f := range l.Fields() {
			value := f.Least
			if most {
				value = f.Most
			}
			if value == "" {
				continue
			}
			if err := f.Value.Set(value); err != nil {
				t.Error(f.Name, err)
			}
		}
		err := limits.Limits{
			CPUs: l.CPUs, Memory: l.Memory, PIDs: l.PIDs, Files: l.Files, CPUTime: l.CPUTime,
			ReadRate: l.ReadRate, WriteRate: l.WriteRate, ReadOps: l.ReadOps, WriteOps: l.WriteOps,
		}.Check()
		if err != nil {
			t.Error(err)
		}
	}
	err := limits.Limits{Memory: 1<<20 - 1}.Check()
	if !errors.Is(err, errs.ErrInvalid) {
		t.Error(err)
	}
}

func TestWhatTheOtherNumbersMean(t *testing.T) {
	queue := func(value string) error { return new(patienceValue).Set(value) }
	rule := func(value string) error { _, err := network.Parse(value); return err }
	for _, one := range []struct {
		give  func(string) error
		value string
		piece string // of the error; "" for none
	}{
		{queue, "10m", ""},
		{queue, "36500d", ""},
		{queue, "0", "--if-room does not wait"},
		{queue, "0s", "--if-room does not wait"},
		{queue, "", "empty: write 10m"},
		{queue, "10", "no unit: write 10s"},
		{queue, "-1m", "no sign"},
		{queue, "NaN", "not a number"},
		{queue, "9999999h", "the most is 36500d"},
		{rule, "a.example:65535+bytes=1B+connections=1", ""},
		{rule, "a.example+bytes=0", "leave the option out"},
		{rule, "a.example+bytes=0M", "leave the option out"},
		{rule, "a.example+bytes=64", "no unit: write 64M"},
		{rule, "a.example+bytes=-1M", "no sign"},
		{rule, "a.example+bytes=99999999999999999999", "the most is 1E"},
		{rule, "a.example+bytes=1e309", "as 512M"},
		{rule, "a.example+bytes=", "empty: write 512M"},
		{rule, "a.example+connections=0", "leave the option out"},
		{rule, "a.example+connections=1k", "no unit: write 1"},
		{rule, "a.example+connections=99999999999999", "the most is"},
		{rule, "a.example:0", "from 1 to 65535"},
		{rule, "a.example:-1", "from 1 to 65535"},
		{rule, "a.example:65536", "from 1 to 65535"},
		{rule, "a.example:99999999999999999999", "from 1 to 65535"},
		{rule, "a.example:", "from 1 to 65535"},
		{rule, "192.0.2.0/NaN", "from 0 to 32"},
		{rule, "192.0.2.0/33", "from 0 to 32"},
		{rule, "", "empty rule"},
		{rule, "a.exa\nmple", "a space"},
	} {
		err := one.give(one.value)
		switch {
		case (err == nil) != (one.piece == ""):
			t.Errorf("%q: %v", one.value, err)
		case err != nil:
			says(t, err, one.piece)
		}
	}
}

// TestLimitsAreDocumented: each with its bounds, in help and in docs/limits.md.
func TestLimitsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"help": newLimits(&app{}).Long, "docs/limits.md": string(page)} {
		text = strings.NewReplacer("`", "", " | ", " ").Replace(strings.Join(strings.Fields(text), " "))
		for _, r := range limitsTable() {
			if row := strings.Join(r[:4], " "); !strings.Contains(text, row) {
				t.Errorf("%s does not say %q", name, row)
			}
		}
	}
	for _, l := range new(catalog.Limits).Fields() {
		if (l.Beyond == "") != (l.Value.Type() == "bool") {
			t.Errorf("what %s means beyond the host is not said", l.Name)
		}
	}
}
