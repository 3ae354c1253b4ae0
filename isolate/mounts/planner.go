//go:build linux

package mounts

import (
	"os"

	"github.com/snapfs/snapfs/isolate/launch"
)

// A Planner adds to the image of a container's pid 1 the system calls that assemble the container's file
// tree, and makes the mounts that only the supervisor can make.
type Planner struct {
	*launch.Image
	Spec        Spec
	HidesAgain  bool // whether the layers that hide entries may be those of an earlier container, and stay for the next
	around      surroundings
	trees       []launch.Cell   // the detached mounts of spec.Mounts
	bases       [][]launch.Cell // for each mount, the Served bases of its overlay
	private     private
	premounts   []premount
	premountFDs int      // image offset at which the descriptors of premounts arrive
	userns      *os.File // the user namespace of pid 1, unless IDs is Same
	files       []bound
	guarded     []int                   // pid 1's descriptors of the programs of Spec.Guarded
	fuseTrees   []fuseTree              // trees whose ids a FUSE process maps
	rootCopy    *os.File                // see rootMount
	hidden      map[string]*hiddenLayer // by the mount's target
	below       string                  // an empty directory, the lowest layer of overlays with NoSockets
	CloseLater  []*os.File              // mounts and directories to close once the trees are complete
	CloseLast   []*os.File              // layers to close after the container's end, because removing their filesystems takes time
	stored      []*os.File              // directories with whiteouts, locked as long as the container has them as layers
}

// Free frees the image, after the end of the container, and unlocks what the container used in the directory of images.
func (pl *Planner) Free() {
	CloseFiles(pl.stored)
	pl.Image.Free()
}

// firstFreeFD is the descriptor number from which on pid 1 has none open at its start, so that its prepared
// system calls can name descriptors beforehand.
const firstFreeFD = 1000

// NewPlanner returns a planner that adds system calls for the file tree of spec to the image im of a
// container's pid 1.
func NewPlanner(im *launch.Image, spec Spec) *Planner {
	return &Planner{Image: im, Spec: spec, around: surroundings{freeFD: firstFreeFD}}
}
