//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/snapfs/snapfs/backends/pool"
	"github.com/snapfs/snapfs/engine/snapshot"
)

// A poolDocument is the JSON form of a pool, a btrfs in an image file that holds workspaces. Later versions
// may add fields, but never change existing ones.
type poolDocument struct {
	Name   string         `json:"name"`
	Image  string         `json:"image"`
	Mount  string         `json:"mount"`
	Size   snapshot.Bytes `json:"size"`
	OnDisk snapshot.Bytes `json:"on_disk"`
	Free   snapshot.Bytes `json:"free"`
	// HostFree is the free space of the filesystem that holds the image; Reserve is the
	// part of it that the pool does not use.
	HostFree snapshot.Bytes `json:"host_free"`
	Reserve  snapshot.Bytes `json:"reserve"`
	Trees    []poolTree     `json:"trees"`
	InUse    []string       `json:"in_use"`
}

type poolTree struct {
	Path     string    `json:"path"`
	Adopted  bool      `json:"adopted"`
	Synced   time.Time `json:"synced"`
	Original string    `json:"original,omitempty"`
	Fstab    string    `json:"fstab,omitempty"`
}

func statusDocument(s pool.Status) poolDocument {
	d := poolDocument{s.Name, s.Image, s.Mount, s.Size, s.OnDisk, s.Free, s.HostFree, s.Reserve, []poolTree{}, append([]string{}, s.InUse...)}
	for _, t := range s.Trees {
		d.Trees = append(d.Trees, poolTree{t.Path, t.Adopted, t.Synced, t.Original, t.Fstab})
	}
	return d
}

type carried struct {
	Path      string         `json:"path"`
	Seen      int64          `json:"seen"`
	Copied    int64          `json:"copied"`
	Bytes     snapshot.Bytes `json:"bytes"`
	Deleted   int64          `json:"deleted"`
	Unsettled []string       `json:"unsettled"`
	// Original is the path to which adoption has renamed the directory, or "".
	Original string `json:"original,omitempty"`
}

// A droppedDocument is the JSON form of the result of `snapfs pool drop-original`: a workspace, and the path of
// its original directory, which is deleted.
type droppedDocument struct {
	Path     string `json:"path"`
	Original string `json:"original"`
}

func carriedDocument(tree string, r pool.Report, original string) carried {
	return carried{tree, r.Seen, r.Copied, r.Bytes, r.Deleted, append([]string{}, r.Unsettled...), original}
}

// copying shows how much of a workspace was copied into a pool, a btrfs in an image file, or out of it so
// far.
func (p *progress) copying(now pool.Progress) {
	p.say(func() string { return fmt.Sprintf("%d seen, %d copied, %v", now.Seen, now.Copied, now.Bytes) })
}
