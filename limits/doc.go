// Package limits says how much the processes of a box may use, sees to it, counts
// what they use, and names the cause when one limit was hit.
//
// The kernel holds a limit where it can: by control groups of version 2 or 1,
// which hold whatever runs inside. Where the caller may not make any, a limit of
// each process (setrlimit(2)) or a watcher in this process stands in. That is
// weaker, and [Group.Level] says it of every limit.
//
// The life of a [Group]: [Start] makes it, empty. Whoever starts the processes
// puts pid 1 of the box into [Group.Cgroups], gives it [Group.Rlimits], and tells
// [Group.Attach] which it is. [Group.Set] changes the limits, [Group.Usage]
// counts, [Group.Events] and [Group.Hit] tell of the limits that were hit. In the
// end [Group.Close] takes the control groups away. Those of a keeper that was
// killed are taken by [Sweep].
//
// The package starts no processes and depends on none: all of it is reading and
// writing files of the kernel.
package limits
