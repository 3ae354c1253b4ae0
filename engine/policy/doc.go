// Package policy reads profiles: the file snapfs.toml, in which a person sets the limits and permissions of
// sandboxes and the stages of promotions. [Read] returns a [Profile] that follows [Grammar], with the
// settings of the profiles that it extends, or an [Error] that lists every mistake with its position and
// correction. The package runs nothing.
//
// A profile has a name if it is built in (directory builtin) or lies in the directory for profiles that the
// host's administrator fills. [ReadSite] returns the site's policy, the administrator's file
// /etc/snapfs/policy.toml with bounds for all sandboxes of the host; [Site.Bound] makes any other policy at
// least as strict.
//
// # Where to start
//
// [Profile] and [Stage] are the result, [Grammar] is the description that both the reader and the documents use.
//
// The package must not know sandboxes, and must not run commands or check that paths exist.
package policy
