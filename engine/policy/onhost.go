package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
)

// A HostCommand is a command of a promotion's stage, such as a deployment, that runs on the host, outside any
// sandbox. If snapfs only found the profile in a workspace, it runs these commands only after the user has
// trusted the profile.
type HostCommand struct {
	Stage string `json:"stage"`
	// When says which key of the stage has the command: deploy, rollback or after.
	When string `json:"when"`
	// Run is the whole command as a shell reads it. It ignores the command's name, which
	// the profile may give it.
	Run string `json:"run"`
}

// OnHost returns the commands that the stages of a promotion run on the host, outside any sandbox, in the
// order of the stages. The user must trust the profile for them.
func OnHost(stages []Stage) []HostCommand {
	commands := []HostCommand{}
	add := func(s *Stage, when string, list ...Command) {
		for _, c := range list {
			commands = append(commands, HostCommand{Stage: s.Name, When: when, Run: c.text()})
		}
	}
	for i := range stages {
		s := &stages[i]
		if s.Deploy != nil {
			add(s, "deploy", *s.Deploy)
		}
		if s.Rollback != nil {
			add(s, "rollback", *s.Rollback)
		}
		add(s, "after", s.After...)
	}
	return commands
}

// text returns the whole command as one line that a shell reads, without the display name that the profile
// may give it.
func (c Command) text() string {
	if len(c.Args) == 3 && c.Args[0] == shell && c.Args[1] == "-c" {
		return c.Args[2]
	}
	return plainCommand(c.Args).Name
}

// digest returns the identity of a profile under which a person's trust in it is stored: a hash of its path,
// without symbolic links, and its content. The path counts because relative commands start there.
func digest(path string, data []byte) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	h := sha256.New()
	h.Write([]byte(path + "\x00"))
	h.Write(data)
	return hex.EncodeToString(h.Sum(nil))
}
