package isolate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/snapfs/snapfs/errs"
)

// Check returns an [*errs.Error] of kind [errs.ErrInvalid] if the Spec contradicts itself or is incomplete. It does not
// access the host.
func (s Spec) Check() error {
	if len(s.Mounts) == 0 || s.Mounts[0].Target != "/" {
		return invalid("the first mount must have the target /")
	}
	for i, m := range s.Mounts {
		if err := m.check(); err != nil {
			return err
		}
		if i > 0 && m.Target == "/" {
			return invalid("two mounts have the target /")
		}
		if s.IDs == Same && m.Overlay != nil && m.Overlay.Upper != "" && !m.Overlay.UserXattr {
			return invalid("%s: an overlay in a user namespace needs UserXattr", m.Target)
		}
	}
	for _, p := range slices.Concat(s.Hide, s.ReadOnly) {
		if err := checkPath(p); err != nil {
			return err
		}
		if p == "/" {
			return invalid("/ itself can be neither hidden nor made read-only; set it on its mount")
		}
	}
	if s.Tmp != "" {
		if err := checkPath(s.Tmp); err != nil {
			return err
		}
	}
	return s.checkRest()
}

func (s Spec) checkRest() error {
	if err := s.checkNetwork(); err != nil {
		return err
	}
	if s.Resolver.Zone() != "" {
		return invalid("a name server with a zone: %s", s.Resolver)
	}
	if len(s.Hostname) > 64 || strings.ContainsAny(s.Hostname, "\x00/\n ") {
		return invalid("host name %q", s.Hostname)
	}
	if s.IDs != Same && (s.IDs.base == 0 || s.IDs.base > ^uint32(0)-s.IDs.size) {
		return invalid("id range %v", s.IDs)
	}
	if slices.Contains(s.Cgroups, nil) {
		return invalid("a cgroup is nil")
	}
	return checkRlimits(s.Rlimits)
}

func (m Mount) check() error {
	if err := checkPath(m.Target); err != nil {
		return err
	}
	kinds := 0
	for _, p := range []string{m.Source, m.Skeleton} {
		if p == "" {
			continue
		}
		if err := checkPath(p); err != nil {
			return err
		}
		kinds++
	}
	if m.Overlay != nil {
		kinds++
		if err := m.Overlay.check(); err != nil {
			return err
		}
	}
	if m.Served != nil {
		kinds++
	}
	if kinds != 1 {
		return invalid("%s: a mount is one of overlay, bind, skeleton and served", m.Target)
	}
	return nil
}

func (o *Overlay) check() error {
	if len(o.Lower) == 0 && (len(o.Base) == 0 || o.Upper == "") {
		return invalid("an overlay without a lower layer")
	}
	if len(o.Base) > 0 && o.Nested {
		return invalid("an overlay of what is served has no layer that contains others")
	}
	if (o.Upper == "") != (o.Work == "") {
		return invalid("an overlay with only one of upper and work directory")
	}
	for _, p := range o.Lower {
		if err := checkPath(p); err != nil {
			return err
		}
	}
	if o.Upper == "" {
		return nil
	}
	if err := checkPath(o.Upper); err != nil {
		return err
	}
	if !strings.HasPrefix(o.Upper, path.Dir(o.Work)+"/") {
		return invalid("upper directory %s does not lie beside the work directory %s, nor in what does", o.Upper, o.Work)
	}
	return checkPath(o.Work)
}

func checkPath(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || strings.ContainsRune(p, 0) {
		return invalid("path %q is not absolute and clean", p)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return &errs.Error{Op: "checking the policy", Kind: errs.ErrInvalid, Err: fmt.Errorf(format, args...)}
}
