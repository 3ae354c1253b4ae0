// Package mounts assembles the file tree of a container.
//
// A [Spec] lists its trees ([Mount]), hidden and read-only paths. A [Planner] adds the steps that create the
// mounts and attach them to the image of the container's pid 1 (package launch), and makes the mounts that only
// the supervisor can make: id-mapped ones, overlays that only the host's root may mount, and FUSE trees
// ([Planner.MakePremounts]). The order of its calls is that of package isolate:
//
//	LookAround, MakePrivate ─► PremountMessage ─► PlanPremounts ─► Assemble ─► MakePremounts
//
// Read [Mount] and [Planner] first. The package must not know the other parts of a container: its processes,
// privileges, network and limits.
package mounts
