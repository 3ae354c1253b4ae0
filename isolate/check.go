package isolate

import (
	"slices"
	"strings"

	"github.com/snapfs/snapfs/isolate/mounts"
)

// check returns an [*errs.Error] of kind [errs.ErrInvalid] if the Spec contradicts itself or is incomplete. It does not
// access the host.
func (s Spec) check() error {
	if len(s.Mounts) == 0 || s.Mounts[0].Target != "/" {
		return mounts.Invalid("the first mount must have the target /")
	}
	for i, m := range s.Mounts {
		if err := m.Check(); err != nil {
			return err
		}
		if i > 0 && m.Target == "/" {
			return mounts.Invalid("two mounts have the target /")
		}
		if s.IDs == Same && m.Overlay != nil && m.Overlay.Upper != "" && !m.Overlay.UserXattr {
			return mounts.Invalid("%s: an overlay in a user namespace needs UserXattr", m.Target)
		}
	}
	for _, p := range slices.Concat(s.Hide, s.readOnly(), s.NoExec, s.Execute, s.Writable, s.Guarded) {
		if err := mounts.CheckPath(p); err != nil {
			return err
		}
		if p == "/" {
			return mounts.Invalid("/ itself can be neither hidden, made read-only nor in a list of programs or writable paths; set it on its mount")
		}
	}
	for _, r := range s.Redacted {
		if !slices.Contains(s.Hide, r.Path) || len(s.Redacted) > mounts.MaxRedacted {
			return mounts.Invalid("%s is shown redacted, but is not hidden, or there are over %d such files", r.Path, mounts.MaxRedacted)
		}
	}
	if s.Tmp != "" {
		if err := mounts.CheckPath(s.Tmp); err != nil {
			return err
		}
	}
	return s.checkRest()
}

func (s Spec) checkRest() error {
	if err := s.checkNetwork(); err != nil {
		return err
	}
	for _, p := range s.Guarded {
		above := func(list string) bool { return list == p || strings.HasPrefix(p, list+"/") }
		if s.Execute == nil || slices.ContainsFunc(s.Execute, above) {
			return mounts.Invalid("%s is guarded, and every process may execute it", p)
		}
	}
	if s.Resolver.Zone() != "" {
		return mounts.Invalid("a name server with a zone: %s", s.Resolver)
	}
	if len(s.Hostname) > 64 || strings.ContainsAny(s.Hostname, "\x00/\n ") {
		return mounts.Invalid("host name %q", s.Hostname)
	}
	if s.IDs != Same && (s.IDs.Base == 0 || s.IDs.Base > ^uint32(0)-s.IDs.Size) {
		return mounts.Invalid("id range %v", s.IDs)
	}
	if slices.Contains(s.Cgroups, nil) {
		return mounts.Invalid("a cgroup is nil")
	}
	if err := s.Observe.check(); err != nil {
		return err
	}
	return checkRlimits(s.Rlimits)
}
