package main

import "github.com/spf13/cobra"

const roomText = `Before a sandbox starts, snapfs checks the capacity of this host. Without a flag it
starts the sandbox unless less than 32 MiB of memory is free or a disk is full.

--queue[=10m] waits for capacity in a queue, first come first served, and prints how
many requests are ahead. After that time snapfs names the resource that is short and
exits with status 123. --if-room exits with status 123 at once if it would have to
wait. --queue=0s is an error: use --if-room, or neither.

Capacity is this host's free resources, less the unused part of the limits of all
running sandboxes: --memory, --disk and --cpus, as changed by "snapfs limits --set".
Without a limit a sandbox counts as 512 MiB of memory (at most an eighth of all), 256
MiB of disk (at most a sixteenth) and one processor. A twentieth of the memory and of
the disk, at most 1 GiB, stays reserved. Memory and processors are also bounded by the
control groups in which snapfs runs. A request for more memory or disk than this host
has fails at once; one for more processors counts as all of them.

While tasks waited for processors in 80 % of the last ten seconds, for memory in 10 %,
or all tasks for disks in 50 % (/proc/pressure), snapfs starts one sandbox at a time.
If no other sandbox runs, processors and pressure do not matter, so that the queue
always advances.

A command in a running sandbox needs no further capacity. new and fork reserve theirs
until the sandbox is created; race reserves one share per running attempt. Sandboxes of
another state directory, and so of another user, are not in the queue: snapfs counts
only the memory, disk and pressure that they cause now.`

// newRoom returns the help topic room, about the host's capacity for sandboxes and the queue for it.
func newRoom(*app) *cobra.Command {
	return &cobra.Command{Use: "room", Short: "explain capacity and the queue for new sandboxes", Long: roomText}
}
