package hostfs

import (
	"strings"

	"github.com/snapfs/snapfs/engine/hostfs/places"
)

// PlacesOfSecrets returns the absolute paths of all files and directories that snapfs hides from sandboxes
// because they may hold secrets, in every home directory, whether they exist or not. It leaves out settings
// files and paths with an element *.
func PlacesOfSecrets() (paths []string) {
	all, _ := homes(userHome())
	for _, row := range places.Rows {
		for _, place := range row.Places {
			below, home := strings.CutPrefix(place, "~/")
			switch {
			case row.WithCredential || row.RootOnly && !Privileged() || strings.Contains(place, "*"):
			case !home:
				paths = append(paths, place)
			default:
				for _, h := range all {
					paths = append(paths, h+"/"+below)
				}
			}
		}
	}
	return paths
}

// placesOfMachine returns the places of the machine, without a leading slash, that are hidden from a sandbox of this user,
// sorted. There is another search for logs.
func placesOfMachine() []string {
	if Privileged() {
		return places.All
	}
	return places.Root
}
