package policy

import (
	"strconv"
	"strings"
	"time"
)

// Name is the file name of a profile in a workspace, where snapfs looks for it.
const Name = "snapfs.toml"

// A Profile is the content of a profile file and of all profiles that it extends: the policy for new
// sandboxes, and the stages of a promotion.
type Profile struct {
	// Path is the absolute path of the file.
	// A built-in profile has its name here.
	Path string `json:"path"`
	// Extends are the names and paths of the profiles that it extends; Sandbox has their settings.
	Extends []string `json:"extends,omitempty"`
	// About and Version are what the profile says of itself.
	About   string `json:"about,omitempty"`
	Version int    `json:"version,omitempty"`
	// Sandbox is the policy that the profile gives to new sandboxes.
	Sandbox Sandbox `json:"sandbox,omitzero"`
	// Stages are in the order of the file, which is that of promotion.
	Stages []Stage `json:"stages"`
	// Found is set if nobody named the file: snapfs found it in the workspace.
	Found bool `json:"-"`
	// Digest identifies the file's place and content together, for a record of trust.
	Digest string `json:"-"`
	// Origins has the place of each setting of Sandbox.
	Origins []Origin `json:"-"`
}

// Stage returns the index, in p.Stages, of the promotion stage called name; ok is false if there is none.
func (p *Profile) Stage(name string) (i int, ok bool) {
	for i, s := range p.Stages {
		if s.Name == name {
			return i, true
		}
	}
	return 0, false
}

// Names returns the names of the profile's stages, in the order of promotion.
func (p *Profile) Names() []string {
	names := make([]string, len(p.Stages))
	for i, s := range p.Stages {
		names[i] = s.Name
	}
	return names
}

// A Stage is one destination of a promotion, with its checks. It has a target directory, or a
// command for deployment, or neither: then it only checks.
type Stage struct {
	Name string `json:"name"`
	// Target is an absolute, clean directory path, or "".
	Target string `json:"target,omitempty"`
	// Deploy and Rollback are both set or both nil.
	Deploy   *Command `json:"deploy,omitempty"`
	Rollback *Command `json:"rollback,omitempty"`
	// Before and After are the stage's checks.
	Before []Command `json:"before,omitempty"`
	After  []Command `json:"after,omitempty"`
	// Approval says whether a person must approve the stage.
	Approval Approval `json:"approval"`
	// Timeout bounds the total time of all its commands.
	Timeout Duration `json:"timeout"`
}

// Approval says whether a stage of a promotion waits for a person: [Auto] or [Ask].
type Approval string

// The ways in which a stage of a promotion is approved.
const (
	// Auto approves the stage of a promotion without a person, when the promotion starts.
	Auto Approval = "auto"
	// Ask requires a person to approve the plan of the stage of a promotion.
	Ask Approval = "ask"
)

// A Command is a program with its arguments that a profile names and that snapfs runs, such as a check of a
// stage of a promotion.
type Command struct {
	// Name is the command's name in messages: the given one, or the command itself.
	Name string `json:"name"`
	// Args are the program and its arguments.
	Args []string `json:"args"`
	// Timeout bounds the command's time; 0 means the rest of the stage's timeout.
	Timeout Duration `json:"timeout,omitzero"`
}

// shell is the program that runs a command which a profile gives as one text instead of a list of arguments.
const shell = "/bin/sh"

// shellCommand returns the command that runs text, a command line of a profile, in the shell /bin/sh.
func shellCommand(text string) Command {
	return Command{Name: firstLine(text), Args: []string{shell, "-c", text}}
}

// plainCommand returns the command that runs a program with arguments, without a shell. Its display name is
// the command line.
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

// A Duration is a time.Duration that profiles and JSON contain as text, such as 90s, 5m or 1h30m.
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

// MarshalText returns the duration as text, such as 1h30m, for JSON.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText sets the duration from text, such as 1h30m, of a profile or JSON.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}
