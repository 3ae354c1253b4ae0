package policy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/dpkg"
	"github.com/snapfs/snapfs/network"
	"github.com/snapfs/snapfs/network/budget"
)

// A Site is the site's policy, the file policy.toml in [SiteDir] by which the host's administrator bounds the
// policies of all sandboxes. No flag and no profile loosens it.
type Site struct {
	// Path is the path of the file.
	Path string
	// Default is the name or path of the profile for requests without one, or "".
	Default string
	// Sandbox has the bounds: the largest limits, the widest network, the paths that are always
	// hidden, and, where the file has these keys, the only places and variables to show.
	Sandbox Sandbox
	Origins []Origin
}

// ReadSite reads the site's policy, the administrator's bounds in /etc/snapfs/policy.toml. It returns nil
// without an error if the host has none. Cost without a policy: one system call. Errors: [*Error];
// errs.ErrDenied if a user other than root could have written it.
func ReadSite() (*Site, error) {
	path := filepath.Join(SiteDir, "policy.toml")
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil // a site without a policy
	}
	for _, p := range []string{SiteDir, path} {
		if err := onlyRootWrites(p); err != nil {
			return nil, err
		}
	}
	data, err := load(path, Named)
	if err != nil {
		var done *errs.Error
		if !errors.As(err, &done) {
			err = &errs.Error{Op: "reading the site's policy", Path: path, Kind: errs.KindOf(err), Err: cause(err)}
		}
		return nil, err
	}
	return parseSite(path, data)
}

func onlyRootWrites(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return &errs.Error{Op: "reading the site's policy", Path: path, Kind: errs.KindOf(err), Err: cause(err)}
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	var why, hint string
	switch {
	case info.Mode()&os.ModeSymlink != 0:
		why, hint = "it is a symbolic link", "replace it by the file itself"
	case !ok || st.Uid != 0:
		why, hint = "it does not belong to root", "sudo chown root "+errs.Quoted(path)
	case info.Mode().Perm()&0o022 != 0:
		why, hint = "others than root may write to it", "sudo chmod go-w "+errs.Quoted(path)
	default:
		return nil
	}
	e := &errs.Error{Op: "reading the site's policy", Path: path, Kind: errs.ErrDenied, Err: errors.New(why)}
	if hint != "" {
		e.Hints = []string{hint}
	}
	return e
}

func parseSite(path string, data []byte) (*Site, error) {
	r := &reader{data: data, dir: filepath.Dir(path), bad: Error{File: path}, site: true}
	r.read()
	if len(r.bad.Mistakes) > 0 {
		return nil, &r.bad
	}
	return &Site{Path: path, Default: r.profile, Sandbox: r.sandbox, Origins: r.origins}, nil
}

// siteLine stores one of the lines above the first section of the administrator's policy.toml: the key name with the
// value v. It records mistakes in v at path, the key's path in the file.
func (r *reader) siteLine(name, path string, v any) {
	if r.profile = r.text(name, path, v); r.profile != "" {
		r.said("profile", r.profile, path)
		if !IsProfileName(r.profile) && !filepath.IsAbs(r.profile) {
			r.wrong(path, fmt.Sprintf("profile: %q is neither a name nor a full path", r.profile), "snapfs profile list has the names")
		}
	}
}

// BoundBySite makes the policy p of a sandbox at least as strict as the site's policy
// (/etc/snapfs/policy.toml), which the administrator may have changed since p was made. Errors: those of
// [ReadSite].
func BoundBySite(p *catalog.Policy) error {
	site, err := ReadSite()
	site.Bound(p)
	return err
}

// AllowedNetwork returns the part of the network setting text that the site's policy, the administrator's file of
// bounds, allows a sandbox with this name and the policy p. Errors: errs.ErrDenied if that is no more than the network
// that p has; those of [ReadSite].
func AllowedNetwork(name string, p catalog.Policy, text string) (string, error) {
	was := p.Network
	p.Network, p.Site = text, nil
	if err := BoundBySite(&p); err != nil {
		return "", err
	}
	if p.Network != text && (p.Network == was || p.Network == "none") {
		return "", &errs.Error{Op: "allowing", Path: name, Kind: errs.ErrDenied, Err: errors.New("the site's policy " + p.Site.Path + " allows no more than " + p.Network)}
	}
	return p.Network, nil
}

// Bound makes the policy p of a sandbox at least as strict as s, the administrator's bounds, and lists in
// p.Site each setting that it changed. s may be nil: no bounds. Bound may be called again for the same
// policy.
func (s *Site) Bound(p *catalog.Policy) {
	if s == nil {
		return
	}
	use := &catalog.SiteUse{Path: s.Path}
	if p.Site != nil {
		use.Bounded = slices.Clone(p.Site.Bounded)
	}
	note := func(format string, values ...any) {
		if text := fmt.Sprintf(format, values...); !slices.Contains(use.Bounded, text) {
			use.Bounded = append(use.Bounded, text)
		}
	}
	s.boundLimits(&p.Limits, note)
	if s.Sandbox.Net != "" {
		if net := Narrower(p.Network, s.Sandbox.Net); net != p.Network {
			note("net %s instead of %s", net, p.Network)
			p.Network = net
		}
	}
	if s.has("sandbox.ask") && p.Ask > s.Sandbox.Ask {
		p.Ask = s.Sandbox.Ask
		note("ask %s", askText(p.Ask))
	}
	p.Expose = slices.DeleteFunc(slices.Clone(p.Expose), func(path string) bool {
		hidden := slices.ContainsFunc(s.Sandbox.Hide, func(h string) bool { return within(path, h) || within(h, path) })
		if !hidden && (!s.has("sandbox.expose") || slices.ContainsFunc(s.Sandbox.Expose, func(e string) bool { return within(path, e) })) {
			return false
		}
		note("expose %s refused", path)
		return true
	})
	p.Env = slices.DeleteFunc(slices.Clone(p.Env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		if !s.has("sandbox.env") || slices.Contains(s.Sandbox.Env, name) {
			return false
		}
		note("env %s refused", name)
		return true
	})
	for _, path := range s.Sandbox.Hide {
		if !slices.Contains(p.Hide, path) {
			p.Hide = append(slices.Clip(p.Hide), path)
			note("hide %s", path)
		}
	}
	s.boundTools(p, note)
	s.boundBudget(p, note)
	if s.Sandbox.Evidence && !p.Evidence {
		p.Evidence = true
		note("evidence true")
	}
	s.boundData(p, note)
	s.boundDirect(p, note)
	if p.Site = nil; len(use.Bounded) > 0 {
		p.Site = use
	}
}

func (s *Site) boundLimits(l *catalog.Limits, note func(string, ...any)) {
	bounds, end := s.Sandbox.Limits, l.RemovalAge()
	if l.RemoveAfter == 0 {
		bounds.KeepEnd = false // there is no end to keep
	}
	theirs := bounds.Fields()
	for i, mine := range l.Fields() {
		if mine.Value.Tighten(theirs[i].Value) {
			note("%s %s", mine.Name, mine.Value)
		}
	}
	if l.RemovalAge() < end { // a shorter ttl does not bring the removal nearer
		l.RemoveAfter = end - l.TTL
	}
}

// boundTools removes from the policy p the programs and agent's tools that the administrator's policy does
// not allow, and adds those that it denies. It passes a description of each change to note.
func (s *Site) boundTools(p *catalog.Policy, note func(string, ...any)) {
	site := s.Sandbox.Tools
	if site.Allow == nil && site.Deny == nil && site.Hook == nil && site.MCP == nil {
		return
	}
	var tools catalog.Tools
	if p.Tools != nil {
		tools = *p.Tools
	}
	switch {
	case site.Allow == nil:
	case tools.Allow == nil:
		tools.Allow = site.Allow
		note("tools allow %s", strings.Join(site.Allow, " "))
	default:
		allowed := []string{}
		for _, mine := range tools.Allow {
			left := s.allowedOf(mine)
			switch {
			case len(left) == 0:
				note("tools allow %s refused", mine)
			case len(left) > 1 || left[0] != mine:
				note("tools allow %s only as %s", mine, strings.Join(left, " "))
			}
			allowed = append(allowed, left...)
		}
		tools.Allow = allowed
	}
	for _, l := range []struct {
		what string
		mine *[]string
		site []string
	}{{"deny", &tools.Deny, site.Deny}, {"hook", &tools.Hook, site.Hook}, {"mcp", &tools.MCP, site.MCP}} {
		for _, rule := range l.site {
			if !slices.Contains(*l.mine, rule) {
				*l.mine = append(slices.Clip(*l.mine), rule)
				note("tools %s %s", l.what, rule)
			}
		}
	}
	p.Tools = &tools
}

// allowedOf returns rules for those programs of the rule mine, which allows programs, that the administrator's policy
// allows: mine itself, or nothing. For the name of a program without a path, which stands for a program in each usual
// directory, it returns the paths in those directories that the policy allows.
func (s *Site) allowedOf(mine string) (rules []string) {
	if program, first, ok := catalog.CutArguments(mine); ok {
		return s.allowedWith(program, first)
	}
	allows := func(mine string) bool {
		return slices.ContainsFunc(s.Sandbox.Tools.Allow, func(rule string) bool { return allowsAll(rule, mine) })
	}
	_, isPackage := catalog.PackageOf(mine)
	if isPackage || strings.Contains(mine, "/") || slices.Contains(s.Sandbox.Tools.Allow, mine) {
		if allows(mine) {
			return []string{mine}
		}
		return s.withArguments(mine)
	}
	for _, dir := range catalog.ProgramDirs {
		if program := dir + "/" + mine; allows(program) {
			rules = append(rules, program)
		}
	}
	if rules == nil {
		return s.withArguments(mine)
	}
	return rules
}

// withArguments returns the rules of the administrator's policy that allow program, as a rule names it, only with
// certain first arguments.
func (s *Site) withArguments(program string) (rules []string) {
	for _, rule := range s.Sandbox.Tools.Allow {
		if theirs, _, ok := catalog.CutArguments(rule); ok && theirs == program {
			rules = append(rules, rule)
		}
	}
	return rules
}

// allowedWith returns rules for those programs that a rule allows with these first arguments and the administrator's
// policy allows, too: with any arguments, or with the same program's name and the first of them.
func (s *Site) allowedWith(program string, first []string) (rules []string) {
	words := " " + strings.Join(first, " ")
	for _, rule := range s.withArguments(program) {
		if _, theirs, _ := catalog.CutArguments(rule); len(theirs) <= len(first) && slices.Equal(theirs, first[:len(theirs)]) {
			return []string{program + words}
		}
	}
	for _, one := range s.allowedOf(program) {
		if _, _, ok := catalog.CutArguments(one); !ok {
			rules = append(rules, one+words)
		}
	}
	return rules
}

// allowsAll reports whether rule, which allows programs, allows all programs that the rule mine allows.
func allowsAll(rule, mine string) bool {
	if _, ok := catalog.PackageOf(mine); ok { // whose programs may lie anywhere
		return rule == mine
	}
	if path, _, ok := catalog.CutDigest(mine); ok && rule != mine {
		mine = path
	}
	return catalog.ToolMatches(rule, mine, dpkg.Installs)
}

// boundBudget lowers the bounds that the policy p sets on a sandbox's network requests to those of the
// administrator's policy. It passes a description of each change to note.
func (s *Site) boundBudget(p *catalog.Policy, note func(string, ...any)) {
	site := s.Sandbox.Budget
	if site == nil {
		return
	}
	low, names := p.Budget.Lowered(site)
	for _, name := range names {
		note("budget %s %s", name, budget.FormatAmount(name, *low.Ceilings()[name]))
	}
	if site.Money > 0 && !slices.Equal(low.Prices, site.Prices) { // with other prices the bound would be another one
		low.Prices = site.Prices
		note("prices of the site's policy only")
	}
	p.Budget = low
}

// boundData removes from the policy p the readable and writable paths that the administrator's policy does not allow, and
// adds its read-only and recorded paths and its labels. It passes a description of each change to note.
func (s *Site) boundData(p *catalog.Policy, note func(string, ...any)) {
	site := s.Sandbox.Data
	if site.MayWrite() == nil && site.ReadOnly == nil && site.Recorded == nil && !site.Labelled() {
		return
	}
	var data catalog.Data
	if p.Data != nil {
		data = *p.Data
	}
	write := data.MayWrite()
	if site.Readable != nil { // writable paths are readable too
		data.Readable = boundPaths("readable", data.Readable, slices.Concat(site.Readable, site.Writable), note)
	}
	if most := site.MayWrite(); most != nil {
		data.Writable = boundPaths("writable", write, most, note)
	}
	for _, l := range []struct {
		what string
		mine *[]string
		site []string
	}{{"read-only", &data.ReadOnly, site.ReadOnly}, {"recorded", &data.Recorded, site.Recorded}, {"secret", &data.Secret, site.Secret}, {"private", &data.Private, site.Private}} {
		for _, path := range l.site {
			if !slices.Contains(*l.mine, path) {
				*l.mine = append(slices.Clip(*l.mine), path)
				note("data %s %s", l.what, path)
			}
		}
	}
	p.Data = &data
}

// boundPaths returns those of mine, the paths of a key of [data] or nil for all, that lie at or below one of most, or
// most itself for nil. It passes a description of each change to note.
func boundPaths(key string, mine, most []string, note func(string, ...any)) []string {
	if mine == nil {
		note("data %s %s", key, strings.Join(most, " "))
		return most
	}
	return slices.DeleteFunc(slices.Clone(mine), func(path string) bool {
		if slices.ContainsFunc(most, func(dir string) bool { return within(path, dir) }) {
			return false
		}
		note("data %s %s refused", key, path)
		return true
	})
}

// has reports whether the administrator's policy has the setting, such as sandbox.env, even as an empty list,
// which allows nothing.
func (s *Site) has(setting string) bool {
	return slices.ContainsFunc(s.Origins, func(o Origin) bool { return o.Setting == setting })
}

// Narrower returns a network setting that allows only the connections that both settings a and b allow. A
// setting is "none", "host", or "allow:" with rules.
func Narrower(a, b string) string {
	const none, host = "none", "host"
	switch {
	case a == none || b == none:
		return none
	case a == host:
		return b
	case b == host:
		return a
	}
	mine, err := network.Parse(strings.TrimPrefix(a, allowed))
	theirs, err2 := network.Parse(strings.TrimPrefix(b, allowed))
	both := mine.Both(theirs)
	if err != nil || err2 != nil || both.Empty() {
		return none
	}
	return allowed + both.String()
}
