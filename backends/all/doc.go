// Package all is the explicit list of backends for each system. No backend registers itself.
package all
