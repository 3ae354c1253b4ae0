package main

import "github.com/spf13/cobra"

const roomText = `Before a sandbox starts, snapfs looks whether this host has room for it. Without a
flag it is started unless next to nothing is left: less than 32 MiB of memory, or a
full disk.

--queue[=10m] waits in line until there is room, first come first served, and says
how many wait before it. Who has waited that long is told for what, with status 123.
--if-room ends at once with status 123 where it would have to wait. To wait for no
time (--queue=0s) is an error: it is --if-room that is meant, or neither.

Room is what this host has now, less what may come to be used by all sandboxes that
run: their --memory, --disk and --cpus, as "snapfs limits --set" has changed them.
Without a limit a sandbox counts with 512 MiB of memory (an eighth of all, where that
is less), 256 MiB of disk (a sixteenth) and one processor. A twentieth of the memory
and of the disk, 1 GiB at most, is not promised to anybody. The control groups in which
snapfs runs bound the memory and the processors that it counts with. What asks for more
than there is at all is refused at once; more processors than there are, are all.

Where something waited for processors in 80 % of the last ten seconds, for memory in
10 %, or everything for disks in 50 % (/proc/pressure), sandboxes are started one at a
time. One alone never waits for processors or for pressure, so that the line goes on.

A command in a sandbox in which something runs already needs no room of its own. new
and fork hold theirs until the sandbox is made, and race one for each attempt that runs.
Sandboxes of another state directory, so of another user, have no part in the line:
they count with the memory and the disk that they have taken, and the pressure.`

// newRoom is a topic of help: snapfs help room.
func newRoom(*app) *cobra.Command {
	return &cobra.Command{Use: "room", Short: "explain capacity and the queue for new sandboxes", Long: roomText}
}
