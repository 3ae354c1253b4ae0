// Package confedit changes a few values in a configuration file of another program and leaves every other byte as it
// is: comments, order, blank lines, unknown keys. It edits JSON, with comments and trailing commas where the file has
// them.
//
// [Remove] undoes [Append] to the same bytes: also the objects and arrays that Append had to make go. Containers of
// the file's owner stay, even if they are empty.
package confedit
