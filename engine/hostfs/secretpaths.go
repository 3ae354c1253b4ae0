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

// placesOfMachine returns the sorted places of the machine, without a leading slash, that sandboxes of this user do
// not see. They do not include logs, which the function logs finds.
func placesOfMachine() []string {
	if Privileged() {
		return places.All
	}
	return places.Root
}
