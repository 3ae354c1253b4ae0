// Package all is the explicit list of backends for each system. Nothing registers
// itself: a backend is in snapfs when it stands here.
package all
