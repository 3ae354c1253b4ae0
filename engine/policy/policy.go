// Package policy reads profiles: the file snapfs.toml, in which a person says
// what a sandbox may do and how its result travels. [Read] answers with a [Profile] in which
// everything is as [Grammar] describes it, or with an [Error] that names every
// mistake, where it is and what mends it. It runs nothing and looks at no file
// but the profile.
package policy

import (
	"strconv"
	"strings"
	"time"
)

// Name is what a profile is called.
const Name = "snapfs.toml"

// A Profile is what the file says.
type Profile struct {
	// Path is where it was read: absolute.
	Path string `json:"path"`
	// Sandbox is what a sandbox under it may do.
	Sandbox Sandbox `json:"sandbox,omitzero"`
	// Stages are in the order of the file, which is that of promotion.
	Stages []Stage `json:"stages"`
}

// Stage finds a stage by its name.
func (p *Profile) Stage(name string) (i int, ok bool) {
	for i, s := range p.Stages {
		if s.Name == name {
			return i, true
		}
	}
	return 0, false
}

// Names are those of the stages, in order.
func (p *Profile) Names() []string {
	names := make([]string, len(p.Stages))
	for i, s := range p.Stages {
		names[i] = s.Name
	}
	return names
}

// A Stage is one place that a result goes to, and what has to hold there. It has
// a target, or a command to deploy with, or neither: then it only checks.
type Stage struct {
	Name string `json:"name"`
	// Target is the directory: absolute and clean. "" where there is none.
	Target string `json:"target,omitempty"`
	// Deploy and Rollback are nil, or both are there.
	Deploy   *Command `json:"deploy,omitempty"`
	Rollback *Command `json:"rollback,omitempty"`
	// Before and After are its checks.
	Before []Command `json:"before,omitempty"`
	After  []Command `json:"after,omitempty"`
	// Approval says whether a person is asked first.
	Approval Approval `json:"approval"`
	// Timeout is how long all its commands may take together.
	Timeout Duration `json:"timeout"`
}

// Approval says who lets a stage begin.
type Approval string

// The kinds of approval.
const (
	// Auto: whoever started the promotion has said enough.
	Auto Approval = "auto"
	// Ask: a person has seen the plan of the stage, and said yes.
	Ask Approval = "ask"
)

// A Command is a program that the profile names.
type Command struct {
	// Name is what it is called in messages: as given, or the command itself.
	Name string `json:"name"`
	// Args are the program and its arguments.
	Args []string `json:"args"`
	// Timeout is how long it may take, 0 for what is left of its stage's.
	Timeout Duration `json:"timeout,omitzero"`
}

// Shell is what runs a command that is given as a text.
const Shell = "/bin/sh"

// shellCommand is a command in the shell's language.
func shellCommand(text string) Command {
	return Command{Name: firstLine(text), Args: []string{Shell, "-c", text}}
}

// plainCommand is a program with its arguments, which no shell sees.
func plainCommand(args []string) Command {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n\"'\\") {
			words[i] = strconv.Quote(a)
		}
	}
	return Command{Name: strings.Join(words, " "), Args: args}
}

func firstLine(text string) string {
	line, more, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if more != "" {
		line += " …"
	}
	return line
}

// A Duration is written as 90s, 5m or 1h30m.
type Duration time.Duration

func (d Duration) String() string {
	s := time.Duration(d).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// MarshalText writes it as it is read.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads it.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}
