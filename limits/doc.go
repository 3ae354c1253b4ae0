// Package limits restricts the resources that the processes of a container may use, counts their use, and names
// the limit that was hit.
//
// The kernel enforces a limit if possible: by control groups of version 2 or 1, which hold all processes
// inside. If the caller may not create control groups, a per-process limit (setrlimit(2)) or a watcher in this
// process replaces them. Both are weaker; [Group.Level] reports how each limit is enforced.
//
// The life of a [Group]: [Start] creates it, without processes. The caller puts pid 1 of the container into
// [Group.Cgroups], gives it [Group.Rlimits], and passes its pid to [Group.Attach]. [Group.Set] changes the
// limits, [Group.Usage] measures, [Group.Events] and [Group.LimitHit] report limits that were hit. Finally
// [Group.Close] removes the control groups. [Sweep] removes those of a killed supervisor.
//
// Read [Limits], [Group] and [Enforcement] first. The package must know neither sandboxes nor how their processes are
// isolated.
//
// The package starts no processes: it only reads and writes files of the kernel.
package limits
