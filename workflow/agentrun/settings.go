package agentrun

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"

	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/agentsetup"
)

// Bounds, in bytes, of what is copied of an agent's settings into a sandbox: a larger file is left out, with
// a notice, and settings that are larger all together are an error.
const (
	maxFile = 4 << 20
	maxAll  = 64 << 20
)

// A file is one file of the agent's settings, as its copy in the sandbox has it. Its name is relative to the
// directory of the agent's configuration.
type file struct {
	name string
	data []byte
	mode int64
}

// settings returns the files of the agent's settings, without credentials, for the copy in the sandbox. It
// leaves out files that may hold one and adds a notice for the person. Errors: errs.ErrInvalid for more than
// 64 MiB.
func (s *Session) settings() (files []file, err error) {
	all := 0
	config := resolved(s.config)
	for _, entry := range s.kit.copied {
		root := resolved(filepath.Join(s.config, entry))
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			}
			name := entry
			if rel, err := filepath.Rel(root, path); err == nil && rel != "." {
				name = filepath.Join(entry, rel)
			}
			one, err := s.copyOf(config, name, path, d)
			if one == nil || err != nil {
				return err
			}
			if all += len(one.data); all > maxAll {
				return errs.New(op, s.config, errs.ErrInvalid, "the settings have more than 64 MiB")
			}
			files = append(files, *one)
			return nil
		})
		if err != nil {
			return nil, errs.Wrap(op, s.config, err)
		}
	}
	return s.addGenerated(files)
}

// copyOf returns the copy, for the sandbox, of the file called name of the agent's settings, which lies at
// path and is the entry d of its directory. config is the directory of the settings without symbolic links.
// The result is nil for a file that is not copied; the error is [fs.SkipDir] for a directory of which nothing
// is copied.
func (s *Session) copyOf(config, name, path string, d fs.DirEntry) (*file, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, nil //nolint:nilerr // a link to nothing
	}
	target, inside := s.targetOf(config, real)
	if !inside {
		s.leave(name, "it is a link to "+real+", outside of the settings")
		if d.IsDir() {
			return nil, fs.SkipDir
		}
		return nil, nil
	}
	if d.IsDir() {
		if d.Name() == "node_modules" || d.Name() == ".git" {
			return nil, fs.SkipDir
		}
		return nil, nil
	}
	info, err := os.Lstat(real)
	switch {
	case err != nil:
		return nil, nil //nolint:nilerr // removed meanwhile
	case info.IsDir():
		s.leave(name, "it is a link to a directory")
		return nil, nil
	case !info.Mode().IsRegular():
		return nil, nil
	case info.Size() > maxFile:
		s.leave(name, "it is larger than 4 MiB")
		return nil, nil
	}
	data, err := s.read(name, real)
	if data == nil || err != nil {
		return nil, err
	}
	data, ok := s.clean(name, target, data)
	if !ok {
		return nil, nil
	}
	return &file{name, data, int64(info.Mode().Perm())}, nil
}

// targetOf returns the name of the file real, a path without symbolic links, in the directory config. It reports
// whether the file belongs to the settings that are copied: a link to the agent's own sign-in or to a file elsewhere
// does not make it one of them.
func (s *Session) targetOf(config, real string) (name string, copied bool) {
	name, err := filepath.Rel(config, real)
	return name, err == nil && slices.ContainsFunc(s.kit.copied, func(entry string) bool { return hostfs.Within(name, entry) })
}

// resolved returns path without symbolic links, or path itself if it does not exist. Two paths are compared
// in this form.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// leave adds a notice for the person that the file called name of the agent's settings, or a part of it, is
// not copied into the sandbox, because of why.
func (s *Session) leave(name, why string) {
	s.Notices = append(s.Notices, "not copied: "+filepath.Join(s.config, name)+": "+why)
}

// read returns the content of a file of the agent's settings, without the hooks (commands at events) that
// snapfs agent install has added: inside a sandbox they cannot run. name is the file's name in the
// configuration, and path the file itself. The content is nil for a file that only has such hooks, and for
// one from which they cannot be removed.
func (s *Session) read(name, path string) ([]byte, error) {
	setup := agentsetup.Setup{Agent: s.Agent}
	hooked, err := setup.Path()
	if err != nil {
		return nil, err
	}
	if hooked != filepath.Join(s.config, name) && resolved(hooked) != path {
		return os.ReadFile(path)
	}
	edit, err := setup.Uninstall()
	if err != nil {
		s.leave(name, "the hooks of snapfs cannot be removed from it: "+err.Error())
		return nil, nil //nolint:nilerr // the person reads it in the notice
	}
	return edit.After, nil
}

// holdsKeys reports whether a file of an agent's settings has a name that files with keys have, such as .env
// or id_rsa. Such a file is not copied into a sandbox.
func holdsKeys(name string) bool {
	base := strings.ToLower(filepath.Base(name))
	return base == ".env" || strings.HasPrefix(base, "id_") || slices.ContainsFunc([]string{".pem", ".key", ".p12", ".env"}, func(end string) bool { return strings.HasSuffix(base, end) })
}

// clean returns data, a file of the agent's settings, without credentials. name is the file's name, and
// target that of the file that name, if it is a link, leads to. It returns false for a file that is left out
// of the sandbox, after a notice for the person.
func (s *Session) clean(name, target string, data []byte) ([]byte, bool) {
	if holdsKeys(name) || holdsKeys(target) {
		s.leave(name, "files of this name hold keys")
		return nil, false
	}
	kind := strings.ToLower(filepath.Ext(target))
	if kind != ".json" && kind != ".jsonc" && kind != ".toml" {
		kind = strings.ToLower(filepath.Ext(name))
	}
	var err error
	switch kind {
	case ".json", ".jsonc":
		data, err = s.cleanJSON(name, data)
	case ".toml":
		data, err = s.cleanTOML(name, data)
	}
	if err != nil {
		s.leave(name, "it cannot be searched for credentials: "+err.Error())
		return nil, false
	}
	if s.holdsKey(data) {
		s.leave(name, "it holds the key")
		return nil, false
	}
	return data, true
}

func (s *Session) holdsKey(data []byte) bool {
	return slices.ContainsFunc(s.values, func(v string) bool { return bytes.Contains(data, []byte(v)) })
}

// scrub returns the decoded content of the file called name of the settings without what may be a credential. It
// notes for the person which command lines it leaves out.
func (s *Session) scrub(name string, value any) any {
	var c scrubber
	clean, ok := c.scrub("", value)
	slices.Sort(c.left)
	for _, place := range c.left {
		s.leave(name, place+" may hold a credential")
	}
	if !ok {
		return map[string]any{}
	}
	return clean
}

// cleanJSON returns data, the JSON file called name of the agent's settings, without credentials. It drops
// comments. Errors: data is not JSON.
func (s *Session) cleanJSON(name string, data []byte) ([]byte, error) {
	plain, err := hujson.Standardize(data) //nolint:misspell // the library's name
	if err != nil {
		return nil, errors.New("not JSON")
	}
	var value any
	if err := json.Unmarshal(plain, &value); err != nil {
		return nil, errors.New("not JSON")
	}
	return json.MarshalIndent(s.scrub(name, value), "", "  ")
}

// cleanTOML returns data, the TOML file called name of the agent's settings, without credentials. In the
// agent's main settings it also changes values that cannot work in a sandbox. Errors: data is not TOML.
func (s *Session) cleanTOML(name string, data []byte) ([]byte, error) {
	value := map[string]any{}
	if err := toml.Unmarshal(data, &value); err != nil {
		return nil, errors.New("not TOML")
	}
	if m, ok := s.scrub(name, value).(map[string]any); ok {
		value = m
	}
	if name == s.kit.main && s.kit.adapt != nil {
		s.kit.adapt(value, s.address)
	}
	return toml.Marshal(value)
}

// addGenerated adds to files, the copies of the agent's settings, the file that this package writes itself:
// the answers to the agent's first questions, or main settings for a sandbox if the person has none.
func (s *Session) addGenerated(files []file) ([]file, error) {
	switch {
	case s.kit.state != "":
		data, err := s.firstAnswers()
		if err != nil {
			return nil, err
		}
		files = append(files, file{s.kit.state, data, 0o600})
	case s.kit.adapt != nil && !slices.ContainsFunc(files, func(f file) bool { return f.name == s.kit.main }):
		settings := map[string]any{}
		s.kit.adapt(settings, s.address)
		data, err := toml.Marshal(settings)
		if err != nil {
			return nil, err
		}
		files = append(files, file{s.kit.main, data, 0o600})
	}
	return files, nil
}

// firstAnswers returns the file in which Claude Code records that its first questions are answered: those members
// of the real one that are no secrets and name no project.
func (s *Session) firstAnswers() ([]byte, error) {
	answers := map[string]any{"customApiKeyResponses": map[string]any{"approved": []string{"@snapfs-key-end@"}, "rejected": []string{}}}
	for _, dir := range []string{s.home, s.config} {
		data, err := os.ReadFile(filepath.Join(dir, s.kit.state))
		var real map[string]any
		if err != nil || json.Unmarshal(data, &real) != nil {
			continue
		}
		for _, name := range s.kit.answers {
			if v, ok := real[name]; ok && !s.holdsKey(fmt.Append(nil, v)) {
				answers[name] = v
			}
		}
	}
	return json.Marshal(answers)
}
