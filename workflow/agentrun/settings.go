package agentrun

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/tailscale/hujson"

	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/workflow/agentsetup"
)

// Bounds of what is copied of an agent's settings: of one file, and of all together.
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

// settings returns the agent's settings without credentials. It leaves out files that may hold one and notes
// that for the person.
func (s *Session) settings() (files []file, err error) {
	all := 0
	for _, entry := range s.kit.copied {
		root := filepath.Join(s.config, entry)
		if real, err := filepath.EvalSymlinks(root); err == nil {
			root = real
		}
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".git"):
				return fs.SkipDir
			}
			info, err := os.Stat(path) // a link to a file is copied as that file
			if err != nil || !info.Mode().IsRegular() {
				return nil //nolint:nilerr // a link to nothing
			}
			name := entry
			if rel, err := filepath.Rel(root, path); err == nil && rel != "." {
				name = filepath.Join(entry, rel)
			}
			if info.Size() > maxFile {
				s.leave(name, "it is larger than 4 MiB")
				return nil
			}
			data, err := s.read(filepath.Join(s.config, entry), path)
			if err != nil || data == nil {
				return err
			}
			if all += len(data); all > maxAll {
				return errs.New(op, s.config, errs.ErrInvalid, "the settings have more than 64 MiB")
			}
			if data, ok := s.clean(name, data); ok {
				files = append(files, file{name, data, int64(info.Mode().Perm())})
			}
			return nil
		})
		if err != nil {
			return nil, errs.Wrap(op, s.config, err)
		}
	}
	return s.addGenerated(files)
}

// leave notes for the person that a file of the settings is not copied.
func (s *Session) leave(name, why string) {
	s.Notices = append(s.Notices, "not copied: "+filepath.Join(s.config, name)+": "+why)
}

// read returns the content of a file of the settings, without the hooks of snapfs agent install: inside a sandbox
// they cannot run. entry is the path in the configuration, and path the file itself. The content is nil for a
// file that only has such hooks.
func (s *Session) read(entry, path string) ([]byte, error) {
	setup := agentsetup.Setup{Agent: s.Agent}
	if hooked, err := setup.Path(); err == nil && (hooked == entry || hooked == path) {
		if edit, err := setup.Uninstall(); err == nil {
			return edit.After, nil
		}
	}
	return os.ReadFile(path)
}

// clean returns a file of the settings without credentials. It reports false for a file that is left out.
func (s *Session) clean(name string, data []byte) ([]byte, bool) {
	base := strings.ToLower(path.Base(filepath.ToSlash(name)))
	if base == ".env" || strings.HasPrefix(base, "id_") || slices.ContainsFunc([]string{".pem", ".key", ".p12", ".env"}, func(end string) bool { return strings.HasSuffix(base, end) }) {
		s.leave(name, "files of this name hold keys")
		return nil, false
	}
	var err error
	switch filepath.Ext(base) {
	case ".json", ".jsonc":
		data, err = s.cleanJSON(data)
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

func (s *Session) cleanJSON(data []byte) ([]byte, error) {
	plain, err := hujson.Standardize(data) //nolint:misspell // the library's name
	if err != nil {
		return nil, errors.New("not JSON")
	}
	var value any
	if err := json.Unmarshal(plain, &value); err != nil {
		return nil, errors.New("not JSON")
	}
	return json.MarshalIndent(scrub(value), "", "  ")
}

// cleanTOML returns a TOML file without credentials. In the agent's main settings it sets what a sandbox needs.
func (s *Session) cleanTOML(name string, data []byte) ([]byte, error) {
	value := map[string]any{}
	if err := toml.Unmarshal(data, &value); err != nil {
		return nil, errors.New("not TOML")
	}
	if m, ok := scrub(value).(map[string]any); ok {
		value = m
	}
	if name == s.kit.main && s.kit.adapt != nil {
		s.kit.adapt(value, s.address)
	}
	return toml.Marshal(value)
}

// addGenerated adds to the settings the files that this package writes itself.
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
