package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/snapfs/snapfs/engine"
	"github.com/snapfs/snapfs/engine/catalog"
	"github.com/snapfs/snapfs/engine/hostfs"
	"github.com/snapfs/snapfs/engine/pathlist"
	"github.com/snapfs/snapfs/engine/policy"
	"github.com/snapfs/snapfs/engine/profile"
	"github.com/snapfs/snapfs/errs"
	"github.com/snapfs/snapfs/internal/dpkg"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// requestFlags hold the flags that describe the sandbox to create, such as --workspace, --net and the limits.
type requestFlags struct {
	name, workspace, backend, profile string
	frozen                            bool
	policy                            catalog.Policy
	secrets                           []string
	keyPoints                         keyPointFlags
	admissionFlags
	// given is the set of all flags of the command, to find out which the user set.
	given *pflag.FlagSet
}

func (r *requestFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	r.given = f
	f.StringVarP(&r.workspace, "workspace", "C", "", "clone this `directory` as the workspace (default the git work tree around the current directory, or the current directory)")
	f.StringVar(&r.backend, "backend", "", "use this `backend` (default $SNAPFS_BACKEND, or the best that works)")
	f.BoolVar(&r.frozen, "frozen", false, "require a base that later edits of the real files cannot change")
	f.StringVar(&r.policy.Network, "net", "none", "set the `network`: none, host, or allow:RULES (see snapfs help net)")
	addAsk(f, &r.policy.Ask)
	f.StringArrayVar(&r.policy.Expose, "expose", nil, "show this secret `path`")
	f.StringArrayVar(&r.policy.Hide, "hide", nil, "also hide this `path`")
	addVariables(f, &r.policy.Env)
	addLimits(f, &r.policy.Limits)
	f.StringVar(&r.profile, "profile", "", "read defaults from this profile: a name, a `file`, or none (default the restrictions in the workspace's snapfs.toml)")
	r.admissionFlags.add(f)
	f.BoolVar(&r.policy.BestEffort, "best-effort", false, "run with less isolation where this host lacks some, with a warning")
	cmd.RegisterFlagCompletionFunc("backend", completeBackend)                                                 //nolint:errcheck // the flag is there
	cmd.RegisterFlagCompletionFunc("net", cobra.FixedCompletions([]string{"none", "host", "allow:"}, noFiles)) //nolint:errcheck // the flag is there
}

// addProve adds the flag --prove, for a self-test before the command, to a command that creates a sandbox and
// starts a command in it.
func (r *requestFlags) addProve(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&r.policy.Prove, "prove", false, "test isolation from inside at each start, before the first command")
}

// addEvidence adds the flag --evidence, for signed statements about the sandbox, to a command that creates
// one.
func (r *requestFlags) addEvidence(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&r.policy.Evidence, "evidence", false, "keep a signed record of what is done to the sandbox (snapfs evidence)")
}

// addSecret adds the flag --secret, which names a secret without a profile, to a command that creates a
// sandbox at once, with the environment of the person's shell.
func (r *requestFlags) addSecret(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&r.secrets, "secret", nil, "put a `secret` into requests that has only a placeholder inside: NAME=env:VARIABLE@HOSTS, NAME=file:PATH@HOSTS or NAME=keyring:PLACE@HOSTS")
}

// request returns the request to the engine to create the sandbox that the flags describe, and the directory
// in which its command starts.
func (r *requestFlags) request(ctx context.Context, a *app) (hostfs.Request, string, error) {
	if err := r.noneEmpty(); err != nil {
		return hostfs.Request{}, "", err
	}
	when, err := r.admission(a.ui)
	if err != nil {
		return hostfs.Request{}, "", err
	}
	start, err := absolute(r.workspace)
	if err != nil {
		return hostfs.Request{}, "", err
	}
	workspace := start
	if r.workspace == "" {
		if workspace, err = hostfs.Workspace(start); err != nil {
			return hostfs.Request{}, "", err
		}
	}
	rules, allowed, err := hostfs.NetworkRules(r.policy.Network)
	if err != nil {
		return hostfs.Request{}, "", usageError(err)
	}
	if allowed {
		r.policy.Network = "allow:" + rules.String()
	}
	if err := r.resolveLists(); err != nil {
		return hostfs.Request{}, "", err
	}
	if start, err = filepath.EvalSymlinks(start); err != nil {
		start = workspace // the engine reports the error
	}
	if !r.given.Changed("backend") {
		r.backend = os.Getenv("SNAPFS_BACKEND")
	}
	if r.policy.KeyPoints, err = r.keyPoints.policy(r.given.Changed); err != nil {
		return hostfs.Request{}, "", err
	}
	req := hostfs.Request{Name: r.name, Workspace: workspace, Backend: r.backend, Frozen: r.frozen, Policy: r.policy, Admission: when}
	if err := r.underProfile(ctx, a, &req); err != nil {
		return hostfs.Request{}, "", err
	}
	if err := r.checkAsk(&req.Policy); err != nil {
		return hostfs.Request{}, "", err
	}
	if err := checkHidden(req.Policy.Hide, workspace, start); err != nil {
		return hostfs.Request{}, "", err
	}
	return req, start, nil
}

// checkHidden returns a usage error if one of the paths hide, which a sandbox is not to see, contains its workspace
// or start, the directory in which its command starts.
func checkHidden(hide []string, workspace, start string) error {
	workspace, err := realDirectory(workspace)
	if err != nil {
		return err
	}
	for _, p := range hide {
		if real, err := realDirectory(p); err == nil && (pathlist.Within(start, real) || pathlist.Within(workspace, real)) {
			return usageError(fmt.Errorf("%s contains the workspace and cannot be hidden", pathlist.Printable(p)))
		}
	}
	return nil
}

// resolveLists makes the paths of the flags --expose and --hide absolute, reads the secrets of --secret, and
// checks that --env holds names of variables.
func (r *requestFlags) resolveLists() (err error) {
	for _, paths := range [][]string{r.policy.Expose, r.policy.Hide} {
		for i, p := range paths {
			if p == "" {
				return usageError(errors.New("--expose and --hide require a path that is not empty"))
			}
			if paths[i], err = absolute(p); err != nil {
				return err
			}
		}
	}
	if len(r.secrets) > 0 {
		here, err := os.Getwd()
		if err != nil {
			return err
		}
		if r.policy.Secrets, err = policy.ParseSecrets(r.secrets, here); err != nil {
			return usageError(fmt.Errorf("--secret: %w", err))
		}
	}
	return checkVariables(r.policy.Env)
}

// addVariables adds the flag --env to f, which names environment variables to pass to the sandbox's commands.
func addVariables(f *pflag.FlagSet, pass *[]string) {
	f.StringArrayVar(pass, "env", nil, "pass this `variable` too, as NAME or NAME=VALUE (snapfs help hidden)")
}

// checkVariables returns a usage error for a value of --env that names no variable.
func checkVariables(pass []string) error {
	for _, p := range pass {
		name, value, _ := strings.Cut(p, "=")
		if name == "" || strings.ContainsAny(name, " \n\x00") || strings.Contains(value, "\x00") {
			return usageError(fmt.Errorf("--env takes NAME or NAME=VALUE, not the name %q", name))
		}
	}
	return nil
}

// underProfile applies the profile of --profile, or one that it finds in the workspace, to the request req.
// It prints a notice about a found profile, and about settings that the administrator's policy tightened.
func (r *requestFlags) underProfile(ctx context.Context, a *app, req *hostfs.Request) error {
	path := r.profile
	if path != "" && path != profile.None && !policy.IsProfileName(path) {
		var err error
		if path, err = absolute(path); err != nil {
			return err
		}
	}
	if err := profile.Apply(ctx, req, path, r.given.Changed); err != nil {
		return err
	}
	if k := req.Policy.KeyPoints; k != nil && len(k.At) == 0 {
		return usageError(errors.New("--keep-snapshots, --keep-snapshots-for and --keep-snapshots-size require --snapshot-at, or a profile with snapshots"))
	}
	if site := req.Policy.Site; site != nil {
		a.ui.notice(tightenedOf(site))
	}
	if use := req.Policy.Profile; use != nil && use.Found {
		a.ui.notice("found " + pathlist.Printable(use.Path) + ": " + usedOf(use))
		if len(use.Left) > 0 {
			a.ui.hint("snapfs run --profile " + errs.Quoted(use.Path) + " …   # if you trust it")
		}
	}
	return nil
}

// tightenedOf returns a text that lists the settings that the administrator's policy (the site's) has
// tightened, or "".
func tightenedOf(site *catalog.SiteUse) string {
	if site == nil {
		return ""
	}
	return pathlist.Printable(site.Path) + " tightened: " + printable(site.Bounded, ", ")
}

// explainRefusal prints the rule of the policy that forbids to execute program, if err is an error about
// that.
func (a *app) explainRefusal(err error, tools *catalog.Tools, program string) {
	var refused *engine.CommandError
	if rule := tools.Rule(program, dpkg.Installs); rule != "" && errors.As(err, &refused) && errors.Is(err, errs.ErrDenied) {
		a.ui.notice("tools: the policy refuses " + pathlist.Printable(program) + ": " + pathlist.Printable(rule))
	}
}

// toolsOf returns a text that lists the policy's rules about which programs a sandbox may execute, or "".
func toolsOf(t *catalog.Tools) string {
	if t == nil {
		return ""
	}
	var parts []string
	if t.Allow != nil {
		parts = append(parts, "allow "+printable(t.Allow, " "))
	}
	for _, l := range []struct {
		what string
		list []string
	}{{"deny", t.Deny}, {"hook", t.Hook}, {"mcp", t.MCP}} {
		if len(l.list) > 0 {
			parts = append(parts, l.what+" "+printable(l.list, " "))
		}
	}
	return strings.Join(parts, "; ")
}

// dataOf returns a text that lists the policy's rules about which files a sandbox may read and write, which only
// read, which reads are recorded, and of which the content may not leave it, or "".
func dataOf(d *catalog.Data) string {
	if d == nil {
		return ""
	}
	var parts []string
	if d.Readable != nil {
		parts = append(parts, "readable "+printable(d.Readable, " "))
	}
	if d.Writable != nil {
		parts = append(parts, "writable "+printable(d.Writable, " "))
	}
	if len(d.ReadOnly) > 0 {
		parts = append(parts, "read-only "+printable(d.ReadOnly, " "))
	}
	if len(d.Recorded) > 0 {
		parts = append(parts, "recorded "+printable(d.Recorded, " "))
	}
	if len(d.Secret) > 0 {
		parts = append(parts, "secret "+printable(d.Secret, " "))
	}
	if len(d.Private) > 0 {
		parts = append(parts, "private "+printable(d.Private, " "))
	}
	return strings.Join(parts, "; ")
}

// printSecrets prints a line about each secret of a policy. line prints a line of a table, its name and its value.
func printSecrets(secrets []catalog.Secret, line func(name, value string)) {
	for i := range secrets {
		line("secret", secretOf(&secrets[i]))
	}
}

// secretOf returns a text about a secret of the policy: its name, its source and the requests that it is put
// into. The catalogue does not store its value.
func secretOf(s *catalog.Secret) string {
	source := "the output of a command"
	switch {
	case s.Env != "":
		source = "the variable " + s.Env
	case s.AWS == catalog.AWSEnv:
		source = "the variables of AWS"
	case s.AWS != "":
		source = "the AWS " + s.AWS
	case s.Identity != "":
		source = s.File + ", encrypted with age,"
	case strings.HasPrefix(s.Keyring, catalog.KernelKeyring):
		source = "the kernel's key " + strings.TrimPrefix(s.Keyring, catalog.KernelKeyring)
	case s.Keyring != "":
		source = "the keyring's " + s.Keyring
	case s.Field != "":
		source = s.Field + " in " + s.File
	case s.File != "":
		source = s.File
	}
	text := printable([]string{s.Name}, "") + " from " + pathlist.Printable(source) + " for " + printable(s.Hosts, " ")
	if len(s.Methods) > 0 {
		text += ", methods " + printable(s.Methods, " ")
	}
	if len(s.Paths) > 0 {
		text += ", paths " + printable(s.Paths, " ")
	}
	if s.Base != nil {
		text += ", base URL " + pathlist.Printable(s.Base.String())
	}
	return text + ", inside as " + printable([]string{s.As}, "")
}

// usedOf returns a text that lists the settings that a profile has set, and those that were ignored, with the
// reason.
func usedOf(use *engine.ProfileUse) string {
	var parts []string
	if len(use.Taken) > 0 {
		parts = append(parts, "used "+printable(use.Taken, ", "))
	}
	if len(use.Left) > 0 {
		why := "flags override it"
		if use.Found {
			why = "it may only tighten"
		}
		parts = append(parts, "ignored, since "+why+": "+printable(use.Left, ", "))
	}
	if parts == nil {
		return "no sandbox settings"
	}
	return strings.Join(parts, "; ")
}

// printable joins names from an untrusted source, such as a profile, into a text in which control characters
// are visible. between separates the names.
func printable(list []string, between string) string {
	shown := make([]string, len(list))
	for i, one := range list {
		shown[i] = pathlist.Printable(one)
	}
	return strings.Join(shown, between)
}

// noneEmpty returns an error if a flag has an empty value, because in a script that usually is an unset
// variable.
func (r *requestFlags) noneEmpty() (err error) {
	r.given.Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" {
			err = usageError(fmt.Errorf("--%s is empty", f.Name))
		}
	})
	return err
}
