package policy

import "time"

// A Section describes one section of a profile: its header and keys. docs/profile.md prints it, and [Read]
// rejects every key that it does not list.
type Section struct {
	// Header is the line that starts the section.
	Header string
	// Text describes the section.
	Text string
	Keys []Key
}

// A Key describes one line that a section of a profile may have: its name, its values and its meaning.
// Documentation and schema are made from it.
type Key struct {
	Name string
	// Value describes the value, and Default the value without the line, or "".
	Value, Default string
	// Text describes the key.
	Text string
}

// defaultTimeout is the time after which snapfs ends a command of a promotion's stage, such as a check, if
// the profile sets no timeout for it.
const defaultTimeout = Duration(time.Hour)

// Grammar returns the description of all sections and keys that a profile may contain. The reader, the
// documentation and the JSON schema are made from it.
func Grammar() []Section {
	return []Section{profileSection(), limitsSection(), sandboxSection(), toolsSection(), dataSection(), secretsSection(), budgetSection(), pricesSection(), resultSection(), directSection(), stageSection(), commandSection()}
}

// profileSection describes the lines that a profile may have above its first section.
func profileSection() Section {
	return Section{
		Header: `extends = "…"`,
		Text: "Lines above the first section. A profile begins with the settings of those that it extends, in their order: " +
			"its own limits, network, budget and times of snapshots replace theirs, a secret replaces theirs of the same name, and its lists add to theirs.",
		Keys: []Key{
			{"extends", "profile, or list of profiles", "", "The name of a built-in profile or of one of the site (snapfs profile list), or the path of a file, with a slash or ending with .toml. A relative path starts at the directory of the profile. A profile that snapfs only found extends no file outside its own directory. No profile extends one with stages."},
			{"about", "text", "", "What the profile is for, in snapfs profile list."},
			{"version", "whole number", "", "The profile's own version."},
		},
	}
}

// siteSection describes the lines that the site's policy, the administrator's /etc/snapfs/policy.toml, may
// have above its first section.
func siteSection() Section {
	return Section{
		Header: `profile = "…"`,
		Keys:   []Key{{"profile", "profile", "", "The profile for sandboxes without --profile: a name, or a full path."}},
	}
}

func stageSection() Section {
	return Section{
		Header: "[[stage]]",
		Text: "One destination of a result. Stages run in the order of the file, each only when the one before it is done. " +
			"A stage has a target, or deploy and rollback, or none of them: then it only checks.",
		Keys: []Key{
			{"name", "text", "", "Its name: letters, digits, dots, hyphens and underscores."},
			{"target", "directory", "", "The directory that the workspace's changes are merged into, three-way, wholly or not at all. A relative path starts at the directory of the profile."},
			{"deploy", "command", "", "Delivers the result. It runs on the real machine, in the target of the nearest stage before it that has one."},
			{"rollback", "command", "", "Reverts deploy. It runs on the real machine, where deploy does: when deploy or a check after it failed, and before an interrupted deploy runs again. It must be safe to repeat."},
			{"before", "list of commands", "", "Checks that must succeed first. They run in a sandbox whose workspace is the target with the changes applied, so that the target never sees a result that does not pass. Their writes are discarded."},
			{"after", "list of commands", "", "Checks that must succeed afterwards. They run on the real machine, in the target. If one fails, this stage is taken back, and no other."},
			{"approval", `"auto" or "ask"`, `"auto"`, "Whether a person must approve the plan before anything of the stage runs."},
			{"timeout", "duration", `"` + defaultTimeout.String() + `"`, "The time for all commands of the stage together. Waiting for a person does not count, nor does rollback."},
		},
	}
}

func commandSection() Section {
	return Section{
		Header: "{ run = … }",
		Text: "A command is a line for the shell, \"make test\", or a program with its arguments, without a shell, [\"./smoke\", \"--quick\"], " +
			"or a table with one of them and more keys. It succeeds if it exits with 0. Its input is empty.",
		Keys: []Key{
			{"run", "text, or list of texts", "", "The command."},
			{"timeout", "duration", "the rest of the stage's", "Its time. Then it is ended, with everything that it started, and has failed."},
			{"name", "text", "the command", "Its name in messages."},
		},
	}
}

// key reports whether the section has a key called name. If not, meant is the key with the most similar name,
// for a hint, or "".
func (s Section) key(name string) (ok bool, meant string) {
	best := 3
	for _, k := range s.Keys {
		if k.Name == name {
			return true, ""
		}
		if d := distance(k.Name, name); d < best && d < len(k.Name) {
			best, meant = d, k.Name
		}
	}
	return false, meant
}

// distance returns the number of letters to insert, delete or replace to turn word a into word b. Hints use
// it to find the name that was meant.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := diagonal
			if a[i] != b[j] {
				next = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
